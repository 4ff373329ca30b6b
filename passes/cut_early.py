"""Moving what frees memory up to where nothing else reads its source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tensoropt.compiler.cost.compute import local_bytes
from tensoropt.compiler.cost.memory import static_values
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.sharding.rule.describe import tensor_info
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import RESHARD, keys, layout_of

__all__ = ["cut_early"]


def cut_early(function: ir.Operation, mesh: Mesh) -> None:
    """Move each reshard to a smaller part to where it is all that still reads its source.

    That is behind the last other operation that reads the source, or behind what makes it. So the
    source is gone while others run, as the walk of the search has it (``search/engine/walk.cpp``).
    What stays in memory, and what is written where old state was, is left alone. Linear in the
    operands of ``function``.
    """
    program = _Program(function, mesh)
    order = list(program.order())
    block = function.regions[0].blocks[0]
    before: ir.Operation | None = None
    for op in order:
        if op in program.cut:
            if before is None:
                op.move_before(block.operations[0])
            else:
                op.move_after(before)
                _take_phase(op, before)
        before = op


def _take_phase(op: ir.Operation, before: ir.Operation) -> None:
    phase = onnx.phase(before)
    if phase is not None:
        keys.PHASE.set(op.attributes, phase)


class _Program:
    """The operations of a function, in an order in which what frees memory runs early."""

    def __init__(self, function: ir.Operation, mesh: Mesh) -> None:
        self.mesh, self.block = mesh, function.regions[0].blocks[0]
        self.static_values = static_values(function)
        self.memory: dict[ir.Value, ir.Value] = {}  # in which other value's a value lies
        self.left: Counter[ir.Value] = Counter()  # reads still to come
        self.reshards: dict[ir.Value, list[ir.Operation]] = {}
        self.cut: set[ir.Operation] = set()
        self.done: set[ir.Operation] = set()
        for op in self.block:
            self._note(op.operation)

    def _note(self, op: ir.Operation) -> None:
        if onnx.is_barrier(op) or onnx.is_pass_through(op):
            self.memory[op.results[0]] = self._memory(op.operands[0])
        for value in _read(op):
            self.left[self._memory(value)] += 1
        if op.name == RESHARD:
            self.reshards.setdefault(self._memory(op.operands[0]), []).append(op)

    def _memory(self, value: ir.Value) -> ir.Value:
        return self.memory.get(value, value)

    def order(self) -> Iterator[ir.Operation]:
        """Yield all operations; ``cut`` then has those that moved."""
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
        """Yield the reshard that alone still reads the memory of a value, if it frees that."""
        memory = self._memory(value)
        if self.left[memory] == 1 and memory not in self.static_values:
            for op in self.reshards.get(memory, ()):
                if op not in self.done and self._frees(op):
                    self.cut.add(op)
                    yield from self._run(op)

    def _frees(self, op: ir.Operation) -> bool:
        info = tensor_info(op.operands[0].type)
        if info is None or op.results[0] in self.static_values:
            return False
        ends = (layout_of(op.attributes[key]) for key in ("src", "dst"))
        before, after = (local_bytes(info, layout, self.mesh) for layout in ends)
        return after < before


def _read(op: ir.Operation) -> list[ir.Value]:
    """Return what an operation reads, not what it only waits for."""
    return [op.operands[0]] if onnx.is_barrier(op) else onnx.read_by(op)
