"""`schedule`: order operations for low peak memory."""

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
    """Reorders the operations of each function to lower peak memory.

    Stretches between operations that have the same place in every order are ordered independently.
    Memory counts whole tensors, live from their definition to their last reader. A stretch keeps
    its order unless a lower peak was found, so the peak never rises. Random operators keep their
    order, and so do collectives; no operation leaves its part of a training step. The result is
    deterministic. The search and the graphs of all ranks use this order.

    Refuses nothing. The work is bounded to about a second; stretches left over keep their order.
    """

    name: ClassVar[str] = "schedule"
    summary: ClassVar[str] = "Order operations for low peak memory."

    def run(self, module: ir.Module) -> None:
        for op in module.body:
            if op.operation.name == "func.func":
                program = read_tasks(op.operation)
                put_in_order(program.operations, lower_peak(program))


def put_in_order(operations: Sequence[ir.Operation], order: Sequence[int]) -> None:
    """Move the operations of tasks into the ``order`` of the tasks; the last one is not moved."""
    for stretch, tasks in _changes(order):
        # Operations in between that are folded at load end up first: they depend on no task.
        for task in tasks:
            operations[task].move_before(operations[stretch.stop])


def _changes(order: Sequence[int]) -> Iterator[tuple[range, Sequence[int]]]:
    """Yield the shortest stretches that contain all moves, each with its tasks in the new order."""
    start = highest = 0
    for place, task in enumerate(order):
        highest = max(highest, task)
        if highest == place:
            if start < place:
                yield range(start, place + 1), order[start : place + 1]
            start = highest = place + 1
