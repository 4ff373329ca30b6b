"""`combine-collectives`: fuse collectives of one kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.program._walk import join
from tensoropt.dialects import onnx
from tensoropt.dialects.collectives import COMBINED
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.keys import TOGETHER
from tensoropt.passes.base import Pass
from tensoropt.passes.timed_tasks import TimedTasks

__all__ = ["CombineCollectivesPass"]


@dataclass(frozen=True)
class CombineCollectivesPass(Pass):
    """Fuses collectives with the same kind, group, element type and reduction.

    All-reduces, all-gathers and reduce-scatters are fused if one collective for all of them,
    including packing, takes less time than separate ones. If they can overlap operators, the number
    to fuse is the one that ends the program first. Fused collectives become consecutive, after the
    definition of all their operands and before the first read of a result; the first gets their
    number (`topt.together`). Results that only leave the program, or go to another part of a
    training step, such as gradients, can wait and so be fused late. Peak memory does not rise.
    Refuses a program without a mesh or a device. Linear in the operations.
    """

    name: ClassVar[str] = "combine-collectives"
    summary: ClassVar[str] = "Fuse collectives of one kind when that saves time."

    def run(self, module: ir.Module) -> None:
        function = onnx.function(module)
        if not any(op.operation.name in COMBINED for op in function.regions[0].blocks[0]):
            return
        with module.context, ir.Location.unknown():
            _combine(TimedTasks(module, function))


def _combine(program: TimedTasks) -> None:
    tasks = program.tasks
    own = program.engine_tasks()
    order, groups = join(own, program.times(), program.overlap_settings)
    program.put_in_order(order)
    members: dict[int, list[ir.Operation]] = {}
    for task in order:
        if groups[task] >= 0:
            members.setdefault(groups[task], []).append(tasks.operations[task])
    for group in members.values():
        for op in group[:-1]:  # operations that are folded at load may be between them
            op.move_before(group[-1])
        TOGETHER.set(group[0].attributes, len(group))
