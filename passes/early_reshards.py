"""Early execution of reshards that free memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tensoropt.compiler.cost.compute import local_bytes
from tensoropt.compiler.cost.memory import static_values
from tensoropt.compiler.sharding.rule.describe import tensor_info
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import RESHARD, layout_of
from tensoropt.passes.reshards import take_part
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["run_shrinking_reshards_early"]


def run_shrinking_reshards_early(function: ir.Operation, mesh: Mesh) -> None:
    """Move each reshard to a smaller part to the point where it is the last reader of its source.

    That point is right after the last other reader of the source, or after its definition. The
    source is then dead while later operations run, which matches the memory model of the search
    (``search/engine/walk.cpp``). Reshards of persistent tensors, and of results that are written
    over old state, are not moved. Linear in the operands of ``function``.
    """
    program = _Program(function, mesh)
    order = list(program.order())
    block = function.regions[0].blocks[0]
    before: ir.Operation | None = None
    for op in order:
        if op in program.moved:
            if before is None:
                op.move_before(block.operations[0])
            else:
                op.move_after(before)
                take_part(op, before)
        before = op


class _Program:
    """The operations of a function, in an order that runs reshards that free memory early."""

    def __init__(self, function: ir.Operation, mesh: Mesh) -> None:
        self.mesh, self.block = mesh, function.regions[0].blocks[0]
        self.static_values = static_values(function)
        self.memory: dict[ir.Value, ir.Value] = {}  # the value that owns the buffer of an alias
        self.left: Counter[ir.Value] = Counter()  # remaining reads
        self.reshards: dict[ir.Value, list[ir.Operation]] = {}
        self.moved: set[ir.Operation] = set()
        self.done: set[ir.Operation] = set()
        for op in (view.operation for view in self.block):
            if onnx.is_barrier(op) or onnx.is_pass_through(op):
                self.memory[op.results[0]] = self._memory(op.operands[0])
            for value in _read(op):
                self.left[self._memory(value)] += 1
            if op.name == RESHARD:
                self.reshards.setdefault(self._memory(op.operands[0]), []).append(op)

    def _memory(self, value: ir.Value) -> ir.Value:
        return self.memory.get(value, value)

    def order(self) -> Iterator[ir.Operation]:
        """Yield all operations in the new order and collect the moved ones in ``moved``."""
        for argument in self.block.arguments:
            yield from self._rest(argument)
        for op in self.block:
            if op.operation not in self.done:
                yield from self._run(op.operation)

    def _run(self, op: ir.Operation) -> Iterator[ir.Operation]:
        self.done.add(op)
        yield op
        read = _read(op)
        for value in read:
            self.left[self._memory(value)] -= 1
        for value in (*read, *op.results):
            yield from self._rest(value)

    def _rest(self, value: ir.Value) -> Iterator[ir.Operation]:
        """Yield the reshard that is the last reader of a value's buffer, if it frees memory."""
        memory = self._memory(value)
        if self.left[memory] == 1 and memory not in self.static_values:
            for op in self.reshards.get(memory, ()):
                if op not in self.done and self._frees(op):
                    self.moved.add(op)
                    yield from self._run(op)

    def _frees(self, op: ir.Operation) -> bool:
        info = tensor_info(op.operands[0].type)
        if info is None or op.results[0] in self.static_values:
            return False
        ends = (layout_of(op.attributes[key]) for key in ("src", "dst"))
        before, after = (local_bytes(info, layout, self.mesh) for layout in ends)
        return after < before


def _read(op: ir.Operation) -> list[ir.Value]:
    """Return the values that an operation reads; a `Barrier` only waits for its second operand."""
    return [op.operands[0]] if onnx.is_barrier(op) else onnx.read_by(op)
