"""Memory from the lifetimes of tensors: the peak of what is alive, and what stays for good."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensoropt.dialects import onnx
from tensoropt.dialects.elements import type_bytes
from tensoropt.dialects.lifetimes import Lifetimes, body_bytes
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import WAIT, keys

__all__ = ["RankMemory", "hold", "in_place", "program_memory", "staying"]


@dataclass(frozen=True)
class RankMemory:
    """Bytes of one rank: parameters and constants, and the most that comes and goes."""

    static_bytes: int
    transient_bytes: int


def program_memory(module: ir.Module) -> RankMemory:
    """Return the memory of one rank of a partitioned ``module``; linear in its operations.

    Operations run in program order and a tensor lives from the one that makes it to the last that
    reads it; arguments live from the start, results to the end, and what a body of control flow
    holds as long as its operation runs. What depends on no input is folded when ONNX Runtime loads
    the graph: it is static, if anything that runs reads it, and what is computed alike is one;
    weights that only such ops read are freed. Static too is what a training step passes on to the
    next, and the gradients, and a decoder's caches; new state is written where the old was.
    Open dimensions count as the end of their ranges, as 1 without one.
    """
    lifetimes = Lifetimes()
    program = _Program(onnx.function(module), lifetimes)
    for _ in program.run():
        pass
    return RankMemory(sum(program.static.values()), lifetimes.peak_bytes())


def hold(function: ir.Operation, lifetimes: Lifetimes) -> Iterator[ir.Operation | None]:
    """Say to ``lifetimes`` what comes and goes, as `program_memory` counts it.

    Yields ``None`` after the arguments, then each operation after what it reads and makes, but none
    that is folded at load. Linear in the operations.
    """
    return _Program(function, lifetimes).run()


def staying(function: ir.Operation) -> set[ir.Value]:
    """Return the values that do not come and go: what is folded at load, state, caches, gradients,
    and what is written where an argument was. Linear in the operations."""
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
    """Return the values that are written where an argument was: new state, sums of gradients.
    Linear in the operations."""
    block = function.regions[0].blocks[0]
    sums = _accumulators(function)
    added = {
        op.operation.results[0]
        for op in block
        if keys.GRADIENT_OF.on(op.operation.attributes)
        and not sums.isdisjoint(op.operation.operands)
    }
    returned = block.operations[len(block.operations) - 1].operation.operands
    pairs = zip(returned, onnx.held_by(function, "res_attrs", len(returned)), strict=True)
    return added | {value for value, own in pairs if keys.UPDATES.on(own)}


class _Program:
    def __init__(self, function: ir.Operation, lifetimes: Lifetimes) -> None:
        self.function = function
        self.folded = onnx.folded_values(function)
        self.in_place = in_place(function)
        self.same: dict[ir.Value, ir.Value] = {}  # what lies in the memory of another value
        self.alike: dict[ir.Value, ir.Value] = {}  # the first that is folded to the same
        self.first: dict[object, list[ir.Value]] = {}
        self.static: dict[ir.Value, int] = {}
        self.lifetimes = lifetimes
        self.together = 1

    def run(self) -> Iterator[ir.Operation | None]:
        block = self.function.regions[0].blocks[0]
        caches = _caches(self.function)
        for value, own in onnx.arguments(self.function):
            stays = keys.STATE.on(own) or keys.NAME.get(own) in caches
            self._argument(value, is_state=stays)
        yield None
        for op in block:
            if len(op.results) and self.folded.issuperset(op.results):
                self._fold(op.operation)
            else:
                self._op(op.operation)
                yield op.operation

    def _argument(self, value: ir.Value, *, is_state: bool) -> None:
        if is_state:
            self.static[value] = type_bytes(value.type)
        elif value not in self.folded:
            self.lifetimes.define(value, type_bytes(value.type))

    def _op(self, op: ir.Operation) -> None:
        for value in onnx.read_values(op)[: 1 if onnx.is_barrier(op) else None]:
            if value in self.folded:
                self.static[self.alike.get(value, value)] = type_bytes(value.type)
            self.lifetimes.use(self.same.get(value, value))
        if onnx.is_barrier(op) or op.name == WAIT:
            self._pass_on(op)
            return
        for value in op.results:
            if keys.GRADIENT_OF.on(op.attributes) and value not in self.in_place:
                self.static[value] = type_bytes(value.type)
            elif value not in self.in_place:
                self.lifetimes.define(value, type_bytes(value.type))
        if len(op.regions):
            self.lifetimes.define(op, body_bytes(op))
        self.together = keys.TOGETHER.get(op.attributes, self.together) - 1
        if self.together < 1:  # else the next one runs at the same time
            self.lifetimes.advance()
            self.together = 1

    def _pass_on(self, op: ir.Operation) -> None:
        """Let what an operation passes on lie where it was, unless it is written into old state."""
        if op.results[0] not in self.in_place:
            self.same[op.results[0]] = self.same.get(op.operands[0], op.operands[0])
        if op.name == WAIT:
            self.lifetimes.advance()  # what was held until here has ended before the next one

    def _fold(self, op: ir.Operation) -> None:
        """Note which op before this one makes the same: that is what ONNX Runtime keeps."""
        attributes = tuple((name, op.attributes[name]) for name in onnx.attributes(op))
        read = tuple(self.alike.get(value, value) for value in op.operands)
        key = op if len(op.regions) else (op.name, attributes, read)
        self.alike.update(zip(op.results, self.first.setdefault(key, [*op.results]), strict=True))


def _caches(function: ir.Operation) -> set[str | None]:
    """Return the names of the arguments that are caches."""
    return {keys.CACHE.get(own) for own in onnx.carried(function, "res_attrs")} - {None}


def _accumulators(function: ir.Operation) -> set[ir.Value]:
    """Return the arguments that gradients of several batches are added to."""
    return {value for value, own in onnx.arguments(function) if keys.STATE.get(own) == "gradient"}
