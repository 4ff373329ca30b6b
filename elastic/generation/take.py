"""Taking over the state of another generation: from its memory into this rank's, box by box."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensoropt.elastic.generation.arena import Block, arrays_in, mapped, size_of
from tensoropt.elastic.generation.parts import pieces_to_take
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.state import Held

__all__ = ["Holders", "take_from"]

_CHUNK = 1 << 22  # bytes that one thread copies at a time


@dataclass(frozen=True)
class Holders:
    """A generation whose memory this rank reads: its plan, and the state of each of its ranks."""

    facts: Mapping[str, Any]
    plan: TrainingPlan
    memory: tuple[mmap.mmap | None, ...]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Holders:
        """Return those that a coordinator told of: a plan's folder, a block and a distance each.

        The block is None of one that this rank takes nothing from.

        Raises `UserError` where one cannot be read.
        """
        plan = TrainingPlan.of(Plan.read(facts["plan"]))
        blocks = [None if block is None else Block(**block) for block in facts["blocks"]]
        if len(blocks) != plan.plan.ranks or any(b and b.size < size_of(plan) for b in blocks):
            raise UserError(f"{Path(facts['plan']).name}: not the plan of {len(blocks)} blocks")
        return cls(facts, plan, tuple(None if b is None else mapped(b) for b in blocks))


def take_from(holders: Holders, held: Held, threads: int) -> int:
    """Set ``held`` to the state that ``holders`` have; returns the bytes that were copied.

    Each is copied once, by ``threads`` threads. Raises `UserError` where the states differ.
    """
    sources = [
        arrays_in(memory, holders.plan) if memory is not None else {} for memory in holders.memory
    ]
    targets = {state.name: _host(held, state.name) for state in held.plan.state}
    moved = 0
    with ThreadPoolExecutor(threads) as pool:
        copies = []
        distances = holders.facts["distances"]
        for name, piece in pieces_to_take(holders.plan, held.plan, held.rank, distances):
            into = targets[name][piece.mine]
            source = sources[piece.holder][name][piece.theirs]
            moved += into.nbytes
            copies += [pool.submit(np.copyto, *pair) for pair in _chunks(into, source)]
        for copy in copies:
            copy.result()
    for name, target in targets.items():
        held.state[name].put(target)
    held.clear_gradients()
    return moved


def _host(held: Held, name: str) -> Array:
    """Return memory for a tensor's values: on the CPU that of the state itself."""
    array = held.state[name]
    return array.get() if held.provider.name == "cpu" else np.empty(array.shape, array.dtype)


def _chunks(into: Array, source: Array) -> Iterator[tuple[Array, Array]]:
    """Yield both in slices along the first dimension that are small enough to share out."""
    if into.ndim == 0 or into.nbytes <= _CHUNK:
        yield into, source
        return
    rows = max(1, len(into) * _CHUNK // into.nbytes)
    for start in range(0, len(into), rows):
        yield into[start : start + rows], source[start : start + rows]
