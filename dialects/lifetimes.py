"""Live ranges of tensors in a block, and the peak memory that follows from them."""

from __future__ import annotations

from itertools import accumulate

from tensoropt.dialects import onnx
from tensoropt.dialects.elements import type_bytes
from tensoropt.dialects.mlir import ir

__all__ = ["Lifetimes", "block_bytes", "body_bytes"]


class Lifetimes:
    """The live ranges and sizes of tensors over the steps of a program."""

    def __init__(self) -> None:
        self.step = 0
        self._first: dict[object, int] = {}
        self._last: dict[object, int] = {}
        self._bytes: dict[object, int] = {}

    def define(self, tensor: object, size_bytes: int) -> None:
        """Record that the current step defines ``tensor``."""
        self._first[tensor] = self._last[tensor] = self.step
        self._bytes[tensor] = size_bytes

    def use(self, tensor: object) -> None:
        """Record that the current step reads ``tensor``; ignored if it was never defined."""
        if tensor in self._last:
            self._last[tensor] = self.step

    def advance(self) -> None:
        self.step += 1

    def peak_bytes(self) -> int:
        """Return the most live bytes in any step, including its operands and results."""
        return max(self.alive_bytes())

    def alive_bytes(self) -> list[int]:
        """Return the live bytes in each step, and after the last step."""
        change = [0] * (self.step + 2)
        for tensor, size in self._bytes.items():
            change[self._first[tensor]] += size
            change[self._last[tensor] + 1] -= size
        return list(accumulate(change))

    def alive(self, step: int) -> dict[object, int]:
        """Return the bytes of each live tensor in ``step``, in the order of definition."""
        live = (t for t in self._bytes if self._first[t] <= step <= self._last[t])
        return {tensor: self._bytes[tensor] for tensor in live}


def body_bytes(op: ir.Operation) -> int:
    """Return the peak bytes of one run of a body of a control-flow ``op``, for its largest body.

    Arguments and results count. Captured values do not, because they are live outside. Linear in
    the operations of the bodies.
    """
    return max((block_bytes(block) for region in op.regions for block in region), default=0)


def block_bytes(block: ir.Block) -> int:
    """Return the peak bytes of one run of the body ``block``."""
    lifetimes = Lifetimes()
    for argument in block.arguments:
        lifetimes.define(argument, type_bytes(argument.type))
    for child in block:
        op = child.operation
        for value in onnx.read_values(op):
            lifetimes.use(value)
        for result in op.results:
            lifetimes.define(result, type_bytes(result.type))
        if len(op.regions):
            lifetimes.define(op, body_bytes(op))
        lifetimes.advance()
    return lifetimes.peak_bytes()
