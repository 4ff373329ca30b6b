"""`schedule`: operations in an order in which fewer bytes are alive at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.schedule.schedule import lower_peak
from tensoropt.compiler.schedule.tasks import read_tasks
from tensoropt.dialects.mlir import ir
from tensoropt.passes.base import Pass

__all__ = ["SchedulePass", "put_in_order"]


@dataclass(frozen=True)
class SchedulePass(Pass):
    """Puts the operations of each function into an order that lowers the peak of memory.

    What lies between operations that have their place in every order is ordered alone, counting
    whole tensors from the operation that makes them to the last that reads them. The order given
    stays wherever no lower peak was found, so that the peak is never higher. What draws numbers
    keeps its order, and so do collectives; nothing passes from one part of a training step to
    another. The same program gives the same order. The search and the graphs of all ranks follow
    it.

    Refuses nothing. The work is bounded: what a second of it does not reach stays as it is.
    """

    name: ClassVar[str] = "schedule"
    summary: ClassVar[str] = "Order operations so that fewer bytes are alive at once."

    def run(self, module: ir.Module) -> None:
        for op in module.body:
            if op.operation.name == "func.func":
                _schedule(op.operation)


def _schedule(function: ir.Operation) -> None:
    program = read_tasks(function)
    put_in_order(program.operations, lower_peak(program))


def put_in_order(operations: Sequence[ir.Operation], order: Sequence[int]) -> None:
    """Move the operations that tasks are into the ``order`` of these; the last one stays."""
    for stretch, tasks in _changes(order):
        # What is folded at load, in between, stays ahead of all of them: it needs none.
        for task in tasks:
            operations[task].move_before(operations[stretch.stop])


def _changes(order: Sequence[int]) -> Iterator[tuple[range, Sequence[int]]]:
    """Yield the shortest stretches within which tasks change places, with their tasks in order."""
    start = highest = 0
    for place, task in enumerate(order):
        highest = max(highest, task)
        if highest == place:
            if start < place:
                yield range(start, place + 1), order[start : place + 1]
            start = highest = place + 1
