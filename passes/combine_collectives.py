"""`combine-collectives`: what ranks send several times in a row is sent as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.search._engine import join
from tensoropt.dialects import onnx
from tensoropt.dialects.collectives import COMBINED
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.keys import TOGETHER
from tensoropt.passes.base import Pass
from tensoropt.passes.timed_tasks import TimedTasks

__all__ = ["CombineCollectivesPass"]


@dataclass(frozen=True)
class CombineCollectivesPass(Pass):
    """Marks collectives of one kind, group, element type and reduction that are sent as one.

    Reductions, gathers and scatters are joined where the time of one for all of them, packing
    counted, is less than that of each alone; where they can run beside operators, as many as let
    the program end first. They stand behind each other where the operands of all are there, and
    before what reads the first result; the first has their number (`topt.together`). What only
    leads from a result out of the program, or to another part of a training step, waits for it: so
    gradients are. The peak of memory does not rise. Refuses a program without a mesh or a device.
    Linear in the operations.
    """

    name: ClassVar[str] = "combine-collectives"
    summary: ClassVar[str] = "Join collectives that are alike, where that saves time."

    def run(self, module: ir.Module) -> None:
        function = onnx.function(module)
        if not any(op.operation.name in COMBINED for op in function.regions[0].blocks[0]):
            return
        with module.context, ir.Location.unknown():
            _combine(TimedTasks(module, function))


def _combine(program: TimedTasks) -> None:
    tasks = program.tasks
    own = program.engine_tasks()
    order, groups = join(own, program.times(), program.how)
    program.put_in_order(order)
    members: dict[int, list[ir.Operation]] = {}
    for task in order:
        if groups[task] >= 0:
            members.setdefault(groups[task], []).append(tasks.operations[task])
    for one in members.values():
        for op in one[:-1]:  # what is folded at load may lie between them
            op.move_before(one[-1])
        TOGETHER.set(one[0].attributes, len(one))
