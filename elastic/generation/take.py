"""Taking over the state of another generation: from its memory into this rank's, box by box."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensoropt.elastic.generation.arena import Block
from tensoropt.elastic.generation.memory import Move, Source, StateMemory
from tensoropt.elastic.generation.parts import pieces_to_take
from tensoropt.elastic.generation.places import size_of
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.state import Held

__all__ = ["Holders", "take_from"]

_NODE = 4.0  # times as far as any memory of the same machine


@dataclass(frozen=True)
class Holders:
    """A generation whose memory this rank reads: its plan, and the state of each of its ranks."""

    facts: Mapping[str, Any]
    plan: TrainingPlan
    source: Source

    @classmethod
    def of(cls, facts: Mapping[str, Any], memory: StateMemory) -> Holders:
        """Return those that a coordinator told of: a plan's folder, a block and a distance each.

        The block is None of one that this rank takes nothing from.

        Raises `UserError` where one cannot be read.
        """
        plan = TrainingPlan.of(Plan.read(facts["plan"]))
        blocks = [None if block is None else Block(**block) for block in facts["blocks"]]
        if len(blocks) != plan.plan.ranks or any(b and b.size < size_of(plan) for b in blocks):
            raise UserError(f"{Path(facts['plan']).name}: not the plan of {len(blocks)} blocks")
        return cls(facts, plan, memory.open(blocks, plan))

    def distances(self) -> list[float]:
        """Return how far it is to each rank: to its node first, and there to its memory."""
        nodes = enumerate(self.facts["distances"])
        return [_NODE * far + self.source.distance(rank) for rank, far in nodes]


def take_from(holders: Holders, held: Held, threads: int) -> int:
    """Set ``held`` to the state that ``holders`` have; returns the bytes that were copied.

    Each is copied once. Raises `UserError` where the states differ.
    """
    distances = holders.distances()
    found = pieces_to_take(holders.plan, held.plan, held.rank, distances)
    moves = [Move(name, piece) for name, piece in found]
    holders.source.copy(moves, threads)
    holders.source.close()
    held.clear_gradients()
    return sum(_size(move) * held.state[move.name].dtype.itemsize for move in moves)


def _size(move: Move) -> int:
    return math.prod(side.stop - side.start for side in move.piece.mine)
