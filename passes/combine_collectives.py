"""`combine-collectives`: what ranks send several times in a row is sent as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.cost.joining import joining_time
from tensoropt.compiler.layout.collective import Collective
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.layout.sizes import mean_of
from tensoropt.compiler.schedule.tasks import Tasks, read_tasks
from tensoropt.compiler.search._engine import join
from tensoropt.compiler.sharding.rule.describe import tensor_info
from tensoropt.dialects import onnx
from tensoropt.dialects.collectives import COMBINED, Alike, kind_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.keys import TOGETHER
from tensoropt.passes.base import Pass
from tensoropt.passes.schedule import put_in_order
from tensoropt.passes.strategies import resharder_of

__all__ = ["CombineCollectivesPass"]


@dataclass(frozen=True)
class CombineCollectivesPass(Pass):
    """Marks collectives of one kind, group, element type and reduction that are sent as one.

    Reductions, gathers and scatters are joined where the time of one for all of them, packing
    counted, is less than that of each alone. They stand behind each other where the operands of all
    are there, and before what reads the first result; the first has their number
    (`topt.together`). What only leads from a result out of the program, or to
    another part of a training step, waits for it: so gradients are. The peak of memory does not
    rise. Refuses a program without a mesh or a device. Linear in the operations.
    """

    name: ClassVar[str] = "combine-collectives"
    summary: ClassVar[str] = "Join collectives that are alike, where that saves time."

    def run(self, module: ir.Module) -> None:
        function = onnx.function(module)
        if not any(op.operation.name in COMBINED for op in function.regions[0].blocks[0]):
            return
        resharder = resharder_of(module, function)
        with module.context, ir.Location.unknown():
            _Program(function, resharder.mesh, resharder.device).combine()


@dataclass
class _Program:
    """A function as tasks, with what its collectives have in common."""

    function: ir.Operation
    mesh: Mesh
    device: Device
    keys: dict[Alike, int] = field(default_factory=dict)

    def combine(self) -> None:
        tasks = read_tasks(self.function, keeps_collectives=False)
        order, groups, _ = self._joined(tasks)
        put_in_order(tasks.operations, order)
        members: dict[int, list[ir.Operation]] = {}
        for task in order:
            if groups[task] >= 0:
                members.setdefault(groups[task], []).append(tasks.operations[task])
        for one in members.values():
            for op in one[:-1]:  # what is folded at load may lie between them
                op.move_before(one[-1])
            TOGETHER.set(one[0].attributes, len(one))

    def _joined(self, tasks: Tasks) -> tuple[Sequence[int], Sequence[int], int]:
        """Return the tasks in their new order, and per task the first of its group, -1 for none."""
        numbers = [self._key(op) for op in tasks.operations]
        times = [
            joining_time(cast("Collective", kind), axes, self.mesh, self.device)
            for kind, axes, _, _ in self.keys
        ]
        return join(
            numbers,
            [
                _bytes(op) if key >= 0 else 0.0
                for op, key in zip(tasks.operations, numbers, strict=True)
            ],
            [int(task.stage == "update") for task in tasks.tasks],
            [task.reads for task in tasks.tasks],
            [task.makes for task in tasks.tasks],
            [task.after for task in tasks.tasks],
            tasks.sizes,
            tasks.given,
            times,
        )

    def _key(self, op: ir.Operation) -> int:
        """Return the number of what a collective has in common with others, -1 for other ops."""
        alike = kind_of(op)
        return -1 if alike is None else self.keys.setdefault(alike, len(self.keys))


def _bytes(op: ir.Operation) -> float:
    """Return what one rank puts into a collective."""
    info = tensor_info(op.operands[0].type)
    assert info is not None, "collectives are of ranked tensors"
    return mean_of(info.sizes) * info.item_bytes
