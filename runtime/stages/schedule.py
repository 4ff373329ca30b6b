"""Schedules of pipelines: which task a stage runs when, as data.

The layers of a model are cut into *chunks*. A *stage* is a group of devices with one or more
chunks; a batch passes through the chunks as several micro-batches. A chunk reads from the one
before it, or, after parallel branches, from several. A schedule lists the tasks of each stage in
their order: forward passes, backward passes, and gradients of weights where these are tasks of
their own. In inference there are forward passes alone, of one input, which the stages repeat for
each input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

from tensoropt.runtime.support.errors import UserError

__all__ = ["WORKS", "WORK_NAMES", "Reads", "Schedule", "Task", "Work", "chain", "readers_of"]

Work = Literal["F", "B", "W"]
"""A forward pass, a backward pass, or the gradients of weights that a backward pass left out."""

WORKS: tuple[Work, ...] = get_args(Work)

WORK_NAMES: Mapping[Work, str] = {"F": "forward", "B": "backward", "W": "gradients of weights"}

Reads = tuple[tuple[int, ...], ...]
"""The chunks that each chunk reads from, all of them earlier ones."""

_TASK = re.compile(r"([FBW])(0|[1-9][0-9]{0,8})(?:\.(0|[1-9][0-9]{0,8}))?")


class Task(NamedTuple):
    """One micro-batch through one chunk; in text ``F3`` or ``B3.1``, the chunk last if not 0."""

    work: Work
    micro_batch: int
    chunk: int = 0

    def __str__(self) -> str:
        return f"{self.work}{self.micro_batch}{f'.{self.chunk}' if self.chunk else ''}"

    @staticmethod
    def parse(text: str) -> Task:
        """Return the task written as ``text``; raises :class:`UserError` for another text."""
        match = _TASK.fullmatch(text)
        if match is None:
            raise UserError(f"schedule: expected a task such as F0 or B3.1, got: '{text}'")
        work: Work = "F" if match[1] == "F" else "B" if match[1] == "B" else "W"
        return Task(work, int(match[2]), int(match[3] or 0))


def chain(chunks: int) -> Reads:
    """Return the chunks that each chunk reads from if each follows the one before."""
    return tuple((chunk - 1,) if chunk else () for chunk in range(chunks))


def readers_of(reads: Reads) -> Reads:
    """Return the chunks that read from each chunk."""
    found: list[list[int]] = [[] for _ in reads]
    for chunk, sources in enumerate(reads):
        for source in sources:
            found[source].append(chunk)
    return tuple(map(tuple, found))


@dataclass(frozen=True)
class Schedule:
    """The order of tasks on every stage.

    ``places`` has the stage of each chunk, ``orders`` the tasks of each stage. A backward pass
    computes the gradients of weights too, unless the schedule has tasks for them. A chunk sends
    gradients to the chunks that it ``reads`` from.
    """

    places: tuple[int, ...]
    micro_batches: int
    orders: tuple[tuple[Task, ...], ...]
    reads: Reads

    @cached_property
    def readers(self) -> Reads:
        """The chunks that read from each chunk."""
        return readers_of(self.reads)

    @property
    def stages(self) -> int:
        return len(self.orders)

    @property
    def chunks(self) -> int:
        return len(self.places)

    @staticmethod
    def of_stream(stages: int, inputs: int = 1) -> Schedule:
        """Return the schedule of inference: each input passes through the stages, in order."""
        orders = (tuple(Task("F", n, stage) for n in range(inputs)) for stage in range(stages))
        return Schedule(tuple(range(stages)), inputs, tuple(orders), chain(stages))

    @cached_property
    def splits_weights(self) -> bool:
        """True if gradients of weights are tasks of their own."""
        return any(task.work == "W" for order in self.orders for task in order)

    @staticmethod
    def parse(places: Sequence[int], micro_batches: int, orders: Sequence[str]) -> Schedule:
        """Return the schedule of a chain with tasks written as text, separated by spaces."""
        tasks = tuple(tuple(map(Task.parse, text.split())) for text in orders)
        return Schedule(tuple(places), micro_batches, tasks, chain(len(places)))

    @property
    def texts(self) -> list[str]:
        """The tasks of each stage as text; inverse of :meth:`parse`."""
        return [" ".join(map(str, order)) for order in self.orders]
