"""`overlap-collectives`: collectives begin early and are waited for late, as operators run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tensoropt.compiler.layout.collective import HOLDING
from tensoropt.compiler.search._engine import overlap
from tensoropt.dialects import onnx
from tensoropt.dialects.collectives import STARTED
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import WaitOp
from tensoropt.dialects.topt.keys import PHASE, START, TOGETHER
from tensoropt.passes.base import Pass
from tensoropt.passes.timed_tasks import TimedTasks

__all__ = ["OverlapCollectivesPass"]

_WAITS, _STARTS = 2, 1
"""``Overlapped::What`` of the engine."""


@dataclass(frozen=True)
class OverlapCollectivesPass(Pass):
    """Makes collectives a start and a wait, and moves them apart, where the cost model says that it
    gains.

    A collective begins (`topt.start`) as long before what reads its result as it takes, or as
    soon as its operands are there; `topt.wait` stands before the first reader, or for a gradient
    as late as the update. Gathers of split parameters so begin a layer ahead, and reductions of
    gradients go on during the backward pass; they begin behind small collectives that would wait
    for them. Those that are sent as one begin as one. All keep one order, that of their starts.
    The peak of memory does not rise: what is under way counts, and so does what it reads until it
    ends; what is written where old state was is made elsewhere first. Everything is left alone
    where `--overlap off` was given or the device description says that nothing is gained. Refuses
    a program without a mesh or a device. Linear in the operations.
    """

    name: ClassVar[str] = "overlap-collectives"
    summary: ClassVar[str] = "Begin collectives before, and wait for them behind, what can run."

    def run(self, module: ir.Module) -> None:
        function = onnx.function(module)
        if not any(op.operation.name in STARTED for op in function.regions[0].blocks[0]):
            return
        with module.context, ir.Location.unknown():
            program = TimedTasks(module, function)
            if program.device.overlaps:
                _overlap(program)


def _overlap(program: TimedTasks) -> None:
    operations, own = program.tasks.operations, program.engine_tasks()
    groups = _groups(operations)
    events, _ = overlap(own, groups, program.times(), program.how)
    members = _members(groups)
    order = [task for first, what in events if what != _WAITS for task in members[first]]
    program.put_in_order(order)
    waits: list[int] = []
    for first, what in events:
        if what == _WAITS:
            waits += members[first]
            continue
        for task in waits:
            _wait(operations[task], operations[first])
        waits = []
        if what == _STARTS:
            START.set(operations[first].attributes, True)


def _wait(op: ir.Operation, before: ir.Operation) -> None:
    """Let what reads the result of a collective read it once that has ended, which ``before``
    waits for."""
    made: Any = op.results[0]  # the stubs know neither lists of operands nor uses but one
    held: Any = [op.operands[0]] if STARTED[op.name] in HOLDING else []
    with ir.InsertionPoint(before), op.location:
        wait = WaitOp(input=made, held=held, output=made.type).operation
    if PHASE.on(op.attributes):
        PHASE.set(wait.attributes, PHASE.of(op.attributes))
    made.replace_all_uses_except(wait.results[0], wait)


def _groups(operations: Sequence[ir.Operation]) -> list[int]:
    """Return per task the first of the collectives that it is sent as one with, -1 for none."""
    groups, left, first = [], 0, -1
    for task, op in enumerate(operations):
        if TOGETHER.on(op.attributes):
            left, first = TOGETHER.of(op.attributes), task
        groups.append(first if left > 0 else -1)
        left -= 1
    return groups


def _members(groups: Sequence[int]) -> dict[int, list[int]]:
    """Return by the first of each group, or what is alone, all of it."""
    members: dict[int, list[int]] = {}
    for task, first in enumerate(groups):
        members.setdefault(task if first < 0 else first, []).append(task)
    return members
