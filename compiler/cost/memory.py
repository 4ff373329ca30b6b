"""Memory of a rank from the live ranges of tensors: static memory, and the peak of live tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensoropt.compiler.cost.fused_attention import kernel_bytes
from tensoropt.compiler.layout.sizes import end_of
from tensoropt.dialects import onnx
from tensoropt.dialects.elements import type_bytes
from tensoropt.dialects.lifetimes import Lifetimes, body_bytes
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.sizes import sizes_of_type
from tensoropt.dialects.topt import WAIT, keys
from tensoropt.runtime.support.cudnn_attention import read_architectures

__all__ = ["RankMemory", "in_place", "program_memory", "record_lifetimes", "static_values"]


_VIEWS = frozenset(
    f"onnx.{name}" for name in ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
)

_INT64_BYTES = 8

_WITH_WORKSPACE = frozenset(f"onnx.{name}" for name in onnx.ATTENTIONS)
"""Operators with kernels of ours that take memory of GPUs while they run."""

_COPIES_INDICES = frozenset(("onnx.ScatterElements", "onnx.Scatter"))
"""Operators with a CPU kernel in ONNX Runtime that copies all indices, as int64, while it runs."""


@dataclass(frozen=True)
class RankMemory:
    """Bytes of one rank: parameters and constants, and the peak of transient tensors.

    ``working_bytes`` is the peak of these as ONNX Runtime has them: a Reshape and its like take no
    memory of their own if nothing else reads the operand, and kernels have working memory.
    """

    static_bytes: int
    transient_bytes: int
    working_bytes: int


def program_memory(module: ir.Module) -> RankMemory:
    """Return the memory of one rank of a partitioned ``module``; linear in its operations.

    Operations run in program order, and a tensor is live from its definition to its last use.
    Arguments are live from the start, results to the end, and the memory of a control-flow body as
    long as its operation runs.

    Operations that depend on no input are folded when ONNX Runtime loads the graph. Their results
    are static if an operation that runs reads them, and equal results share memory; weights read
    only by folded operations are freed. State that a training step passes to the next, gradients,
    and the caches of a decoder are also static; new state overwrites the old state, and so do
    caches that are updated in place. Open dimensions count as the end of their ranges, or as 1
    without a range.
    """
    program, working = (_run(onnx.function(module), works) for works in (False, True))
    peaks = program.lifetimes.peak_bytes(), working.lifetimes.peak_bytes()
    return RankMemory(sum(program.static.values()), *peaks)


def _run(function: ir.Operation, works: bool) -> _Program:
    program = _Program(function, Lifetimes(), works=works)
    for _ in program.run():
        pass
    return program


def record_lifetimes(function: ir.Operation, lifetimes: Lifetimes) -> Iterator[ir.Operation | None]:
    """Record transient tensors in ``lifetimes``, as `program_memory` counts them.

    Yield ``None`` after the arguments, then each operation after its operands and results are
    recorded, except operations folded at load. Linear in the operations.
    """
    return _Program(function, lifetimes).run()


def static_values(function: ir.Operation) -> set[ir.Value]:
    """Return the static values; linear in the operations.

    These are values folded at load, state, caches, gradients, and values that overwrite an
    argument.
    """
    caches = _caches(function)
    arguments = {
        value
        for value, own in onnx.arguments(function)
        if keys.STATE.on(own) or keys.NAME.get(own) in caches
    }
    gradients = {
        value
        for op in function.regions[0].blocks[0]
        if keys.GRADIENT_OF.on(op.operation.attributes)
        for value in op.operation.results
    }
    return onnx.folded_values(function) | in_place(function) | arguments | gradients


def in_place(function: ir.Operation) -> set[ir.Value]:
    """Return the values that overwrite an argument: new state, and accumulated gradients.

    Linear in the operations.
    """
    block = function.regions[0].blocks[0]
    # With micro-batches, the gradients of each are added to the earlier sums.
    sums = {value for value, own in onnx.arguments(function) if keys.STATE.get(own) == "gradient"}
    added = {
        op.operation.results[0]
        for op in block
        if keys.GRADIENT_OF.on(op.operation.attributes)
        and not sums.isdisjoint(op.operation.operands)
    }
    returned = block.operations[len(block.operations) - 1].operation.operands
    pairs = zip(
        returned, onnx.signature_attributes(function, "res_attrs", len(returned)), strict=True
    )
    return added | {value for value, own in pairs if keys.UPDATES.on(own)}


class _Program:
    def __init__(
        self, function: ir.Operation, lifetimes: Lifetimes, *, works: bool = False
    ) -> None:
        self.function = function
        self.folded = onnx.folded_values(function)
        self.in_place = in_place(function)
        self.same: dict[ir.Value, ir.Value] = {}  # aliases, by the value with the memory
        self.equal: dict[ir.Value, ir.Value] = {}  # the first equal folded value
        self.first: dict[object, list[ir.Value]] = {}
        self.static: dict[ir.Value, int] = {}
        self.lifetimes = lifetimes
        self.works = works  # whether to count working memory, and views once
        module = function.parent
        settings = {} if module is None else keys.TRAINING.get(module.attributes, {})
        self.architectures = read_architectures(str(settings.get("architectures", "")))
        self.together = 1

    def run(self) -> Iterator[ir.Operation | None]:
        block = self.function.regions[0].blocks[0]
        caches = _caches(self.function)
        for value, own in onnx.arguments(self.function):
            if keys.STATE.on(own) or keys.NAME.get(own) in caches:
                self.static[value] = type_bytes(value.type)
            elif value not in self.folded:
                self.lifetimes.define(value, type_bytes(value.type))
        yield None
        for op in block:
            if len(op.results) and self.folded.issuperset(op.results):
                self._fold(op.operation)
            else:
                self._op(op.operation)
                yield op.operation

    def _op(self, op: ir.Operation) -> None:
        for value in onnx.read_values(op)[: 1 if onnx.is_barrier(op) else None]:
            if value in self.folded:
                self.static[self.equal.get(value, value)] = type_bytes(value.type)
            self.lifetimes.use(self.same.get(value, value))
        if onnx.is_barrier(op) or op.name == WAIT:
            if op.results[0] not in self.in_place:  # else it has the memory of old state
                self.same[op.results[0]] = self.same.get(op.operands[0], op.operands[0])
            if op.name == WAIT:
                self.lifetimes.advance()  # the collective ends before the next operation
            return
        if self.works and self._is_view(op):
            self.same[op.results[0]] = self.same.get(op.operands[0], op.operands[0])
        else:
            self._define(op)
        self.together = keys.TOGETHER.get(op.attributes, self.together) - 1
        if self.together < 1:  # else the next operation runs concurrently
            self.lifetimes.advance()
            self.together = 1

    def _define(self, op: ir.Operation) -> None:
        """Record the results, and the memory that the operation takes while it runs."""
        for value in op.results:
            if keys.GRADIENT_OF.on(op.attributes) and value not in self.in_place:
                self.static[value] = type_bytes(value.type)
            elif value not in self.in_place:
                self.lifetimes.define(value, type_bytes(value.type))
        if len(op.regions):
            self.lifetimes.define(op, body_bytes(op))
        elif self.architectures and op.name in _WITH_WORKSPACE:
            self.lifetimes.define(op, kernel_bytes(op, self.architectures))
        elif self.works and op.name in _COPIES_INDICES:
            indices = ir.RankedTensorType(op.operands[1].type)
            self.lifetimes.define(op, _INT64_BYTES * end_of(sizes_of_type(indices)))

    def _is_view(self, op: ir.Operation) -> bool:
        """Return whether the result is in the memory of a transient operand that only it reads."""
        if op.name not in _VIEWS or op.results[0] in self.in_place:
            return False
        if keys.GRADIENT_OF.on(op.attributes) or op.operands[0] in self.folded:
            return False
        uses = iter(op.operands[0].uses)
        return next(uses, None) is not None and next(uses, None) is None

    def _fold(self, op: ir.Operation) -> None:
        """Map the results to the first equal operation, which ONNX Runtime shares."""
        attributes = tuple((name, op.attributes[name]) for name in onnx.attributes(op))
        read = tuple(self.equal.get(value, value) for value in op.operands)
        key = op if len(op.regions) else (op.name, attributes, read)
        self.equal.update(zip(op.results, self.first.setdefault(key, [*op.results]), strict=True))


def _caches(function: ir.Operation) -> set[str | None]:
    """Return the names of the arguments that are caches."""
    return {keys.CACHE.get(own) for own in onnx.carried(function, "res_attrs")} - {None}
