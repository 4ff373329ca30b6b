"""The program of one rank as tasks with their times, the input of fusing and overlapping."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tensoropt.compiler.cost.bodies import whole_time_s
from tensoropt.compiler.cost.communication import collective_time_s, copy_line
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.cost.joining import CollectiveTime, joining_time
from tensoropt.compiler.cost.memory import in_place
from tensoropt.compiler.cost.overlap import NEVER, overlap_effect
from tensoropt.compiler.layout.sizes import mean_of
from tensoropt.compiler.program import _walk
from tensoropt.compiler.program.program import overlapping
from tensoropt.compiler.schedule.tasks import Tasks, merged, read_tasks
from tensoropt.compiler.sharding.rule.describe import describe, tensor_info
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.dialects import onnx
from tensoropt.dialects.collectives import STARTED, CollectiveKind, axes_of, kind_of
from tensoropt.dialects.elements import type_bytes
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys
from tensoropt.dialects.topt.keys import TAKES
from tensoropt.passes.schedule import put_in_order
from tensoropt.passes.strategies import device_of, resharder_of
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.collectives import BY_IR_NAME

__all__ = ["TimedTasks"]

_SLICE = "shard.all_slice"


@dataclass
class TimedTasks:
    """The tasks of a function on the mesh and the device of the search.

    If collectives can overlap operators, the operations that the search modelled as one form one
    task (`topt.takes`) with the time that the search used. In a program without a search, the time
    of an operator follows from its local shapes. Raises PassError for a module without a device.
    Linear in the operations.
    """

    module: ir.Module
    function: ir.Operation
    tasks: Tasks = field(init=False)
    mesh: Mesh = field(init=False)
    device: Device = field(init=False)
    kinds: dict[CollectiveKind, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.mesh = resharder_of(self.module, self.function).mesh
        self.device = device_of(self.module)
        found = read_tasks(self.function, keeps_collectives=False)
        self._operations = found.operations
        self._units = list(_units(found.operations))
        self.tasks = merged(found, self._units)
        self._versions = onnx.opsets(self.module)
        self._known: dict[OpInfo, float] = {}
        self._in_place = in_place(self.function)

    def parts(self) -> Iterator[list[ir.Operation]]:
        """Yield the operations of each task that has several, in order."""
        for unit in self._units:
            if len(unit) > 1:
                yield [self._operations[number] for number in unit]

    def put_in_order(self, order: Sequence[int]) -> None:
        """Move the operations into the ``order`` of their tasks."""
        put_in_order(self._operations, [own for task in order for own in self._units[task]])

    @property
    def overlap_settings(self) -> _walk.Overlapping:
        """The overlap parameters of the device, for the engine."""
        return overlapping(self.device)

    def engine_tasks(self) -> _walk.Tasks:
        """Return the tasks in the engine's form."""
        tasks, operations = self.tasks.tasks, self.tasks.operations
        numbers = [self._key(op) for op in operations]
        return _walk.Tasks(
            numbers,
            [_bytes(op) if op.name in STARTED else 0.0 for op in operations],
            [int(task.stage == "update") for task in tasks],
            [task.reads for task in tasks],
            [task.makes for task in tasks],
            [task.after for task in tasks],
            self.tasks.sizes,
            self.tasks.given,
            [self._compute_s(op) for op in operations],
            [self._sent_s(op) for op in operations],
            [_overlap_effect(op) for op in operations],
            [self._lands_bytes(op) for op in operations],
        )

    def times(self) -> list[CollectiveTime]:
        """Return the times of the kinds of collectives that can be fused, by number."""
        return [joining_time(kind, *self._ranks(axes)) for kind, axes, _, _ in self.kinds]

    def _ranks(self, axes: tuple[int, ...]) -> tuple[tuple[int, ...], Mesh, Device]:
        """Return the mesh axes of a collective, with their mesh and their links.

        Without mesh axes it runs over stages or replicas; only the latter take time.
        """
        if axes:
            return axes, self.mesh, self.device
        replicas = keys.REPLICAS.get(self.module.operation.attributes, [0])
        return (0,), Mesh((len(replicas),)), self.device.between_groups

    def _lands_bytes(self, op: ir.Operation) -> int:
        """Return the bytes that a collective writes over old state."""
        lands = op.name in STARTED and op.results[0] in self._in_place
        return type_bytes(op.results[0].type) if lands else 0

    def _key(self, op: ir.Operation) -> int:
        """Return the number of the kind of a collective, -1 for other ops."""
        kind = None if TAKES.on(op.attributes) else kind_of(op)
        return -1 if kind is None else self.kinds.setdefault(kind, len(self.kinds))

    def _sent_s(self, op: ir.Operation) -> float:
        if TAKES.on(op.attributes):
            return float(TAKES.of(op.attributes)["sent_s"])
        return self.collective_s(op) if op.name in BY_IR_NAME else 0.0

    def collective_s(self, op: ir.Operation) -> float:
        """Return the time of a collective."""
        kind = BY_IR_NAME[op.name].name
        return collective_time_s(kind, _bytes(op), *self._ranks(axes_of(op)))

    def _compute_s(self, op: ir.Operation) -> float:
        if not self.device.overlaps:
            return 0.0
        if TAKES.on(op.attributes):
            return float(TAKES.of(op.attributes)["compute_s"])
        if op.name in STARTED:
            return 0.0
        if op.name == _SLICE:
            pieces = self.mesh.extent(axes_of(op))
            return copy_line(2 / pieces, self.device).time_s(_bytes(op))
        if not onnx.is_onnx(op):
            return 0.0
        info = describe(op, self._versions)
        if info not in self._known:
            longer = 1.0 + self.device.waits(self.mesh.size).operators
            self._known[info] = longer * whole_time_s(info, self.device)
        return self._known[info]


def _units(operations: Sequence[ir.Operation]) -> Iterator[range]:
    """Yield the range of operations of each task."""
    start, before = 0, None
    for number, op in enumerate(operations):
        takes = TAKES.get(op.attributes)
        node = None if takes is None else takes["node"]
        if number and (node is None or node != before):
            yield range(start, number)
            start = number
        before = node
    yield range(start, len(operations))


def _overlap_effect(op: ir.Operation) -> int:
    """Return the effect of overlap on the operands of ``op``, ``NEVER`` if it cannot overlap.

    A collective that is part of an operation of the model ends before the next operation begins, as
    in the search.
    """
    if op.name not in STARTED or TAKES.on(op.attributes):
        return NEVER
    return overlap_effect(STARTED[op.name])


def _bytes(op: ir.Operation) -> float:
    """Return the bytes of one rank's input to a collective or slice."""
    info = tensor_info(op.operands[0].type)
    assert info is not None, "collectives are of ranked tensors"
    return mean_of(info.sizes) * info.item_bytes
