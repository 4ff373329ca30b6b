"""`overlap-collectives`: overlap collectives with operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tensoropt.compiler.cost.overlap import shown_share
from tensoropt.compiler.program._walk import overlap
from tensoropt.dialects import onnx
from tensoropt.dialects.collectives import STARTED, axes_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import WaitOp
from tensoropt.dialects.topt.keys import PHASE, START, TAKES, TOGETHER
from tensoropt.passes.base import Pass
from tensoropt.passes.timed_tasks import TimedTasks
from tensoropt.runtime.support.collectives import BY_IR_NAME

__all__ = ["OverlapCollectivesPass"]

_TURNS = frozenset(f"onnx.{name}" for name in onnx.ATTENTIONS)
"""Operations of a turn of a ring."""

_WAITS, _STARTS = 2, 1
"""``Overlapped::What`` of the engine."""


@dataclass(frozen=True)
class OverlapCollectivesPass(Pass):
    """Splits collectives into a start and a wait when the cost model predicts a gain.

    A collective starts (`topt.start`) its own duration before the first reader of its result, or as
    soon as its operands are computed. `topt.wait` comes before the first reader, or for a gradient
    as late as the update. So all-gathers of split parameters start a layer ahead, and reductions of
    gradients overlap the backward pass; they start after small collectives that they would delay.
    Fused collectives start together. Messages of a ring of attention travel during its turns. All
    collectives run in one order, the order of their starts. Peak memory does not rise: collectives
    in flight count, with the operands that they read until they end, and results that are written
    over old state are computed elsewhere first. Does nothing with `--overlap off`, or if the device
    description predicts no gain. Refuses a program without a mesh or a device. Linear in the
    operations.
    """

    name: ClassVar[str] = "overlap-collectives"
    summary: ClassVar[str] = "Start collectives early and wait for them late, to overlap operators."

    def run(self, module: ir.Module) -> None:
        function = onnx.function(module)
        if not any(op.operation.name in STARTED for op in function.regions[0].blocks[0]):
            return
        with module.context, ir.Location.unknown():
            program = TimedTasks(module, function)
            if program.device.overlaps:
                _overlap(program)
                for parts in program.parts():
                    _overlap_ring(program, parts)


def _overlap(program: TimedTasks) -> None:
    operations, own = program.tasks.operations, program.engine_tasks()
    groups = _groups(operations)
    events, _ = overlap(own, groups, program.times(), program.overlap_settings)
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


def _overlap_ring(program: TimedTasks, parts: Sequence[ir.Operation]) -> None:
    """Start the messages of a ring that travel during its turns, if that saves time.

    Each is followed by the attention of a turn, and read in the next turn.
    """
    sent = [(op, reader) for op in parts if (reader := _next_turn(op, parts)) is not None]
    cost, takes = program.device.overlap, TAKES.get(parts[0].attributes)
    if not sent or takes is None or cost is None:
        return
    sent_s = sum(program.collective_s(op) for op, _ in sent)
    ranks = program.mesh.extent(axes_of(sent[0][0]))
    if shown_share(sent_s, len(sent), float(takes["compute_s"]), ranks, cost) < 1:
        for op, reader in sent:
            _wait(op, reader)
            START.set(op.attributes, True)


def _next_turn(op: ir.Operation, parts: Sequence[ir.Operation]) -> ir.Operation | None:
    """Return the first reader of a message if attention comes before it, else ``None``."""
    if op.name not in STARTED:
        return None
    readers = [use.owner.operation for use in op.results[0].uses]
    first = next((n for n, part in enumerate(parts) if part in readers), 0)
    between = parts[parts.index(op) : first]
    return parts[first] if any(part.name in _TURNS for part in between) else None


def _wait(op: ir.Operation, before: ir.Operation) -> None:
    """Insert a `topt.wait` for a collective before ``before``, and make all readers read it."""
    made: Any = op.results[0]  # the stubs lack lists of operands and replace_all_uses_except
    held: Any = [op.operands[0]] if BY_IR_NAME[op.name].retains_operand else []
    with ir.InsertionPoint(before), op.location:
        wait = WaitOp(input=made, held=held, output=made.type).operation
    if PHASE.on(op.attributes):
        PHASE.set(wait.attributes, PHASE.of(op.attributes))
    made.replace_all_uses_except(wait.results[0], wait)


def _groups(operations: Sequence[ir.Operation]) -> list[int]:
    """Return per task the first task of its fused group, -1 if it is not fused."""
    groups, left, first = [], 0, -1
    for task, op in enumerate(operations):
        if TOGETHER.on(op.attributes):
            left, first = TOGETHER.of(op.attributes), task
        groups.append(first if left > 0 else -1)
        left -= 1
    return groups


def _members(groups: Sequence[int]) -> dict[int, list[int]]:
    """Return the tasks of each group by its first task; other tasks form groups of one."""
    members: dict[int, list[int]] = {}
    for task, first in enumerate(groups):
        members.setdefault(task if first < 0 else first, []).append(task)
    return members
