"""Builders for local ops that expand into several ops, with types inferred from the operands."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.dialects.build import Build, element_type, shape_of
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir

__all__ = ["BROADCAST_VERSION", "NARROW", "Arithmetic", "sum_bytes"]

BROADCAST_VERSION = 8
"""First opset in which arithmetic, including Max and Min, broadcasts as in NumPy."""

NARROW = frozenset(("float16", "bfloat16"))
"""Element types too narrow to accumulate many values."""


def sum_bytes(dtype: str, item_bytes: int) -> int:
    """Return the bytes per element of a sum of ``dtype``, see :meth:`Arithmetic.wide`."""
    return 4 if dtype in NARROW else item_bytes


class Arithmetic(Build):
    """Builder of standard-domain ops for ``local``."""

    def __init__(self, local: LocalOp) -> None:
        super().__init__(local.op.location, local.info.standard_version)
        object.__setattr__(self, "local", local)

    local: LocalOp

    def finite(self, x: ir.Value) -> ir.Value:
        """Return ``x`` with infinities replaced by the largest finite values."""
        import numpy as np

        element = element_of(str(element_type(x)))
        assert element is not None
        largest = float(np.finfo(element.dtype).max)
        below = self.binary("Min", x, self.scalar(largest, x))
        return self.binary("Max", below, self.scalar(-largest, x))

    def sum(self, x: ir.Value, dims: Sequence[int], axes: Sequence[int]) -> ir.Value:
        """Return the sum of ``x`` over tensor dimensions ``dims`` and the ranks along ``axes``."""
        return self.local.all_reduce(self.reduce("ReduceSum", x, dims), axes, "sum")

    def max(self, x: ir.Value, dims: Sequence[int], axes: Sequence[int]) -> ir.Value:
        """Return the maximum over tensor dimensions ``dims`` and the ranks along ``axes``."""
        return self.local.all_reduce(self.reduce("ReduceMax", x, dims), axes, "max")

    def min(self, x: ir.Value, dims: Sequence[int], axes: Sequence[int]) -> ir.Value:
        """Return the minimum over tensor dimensions ``dims`` and the ranks along ``axes``."""
        return self.local.all_reduce(self.reduce("ReduceMin", x, dims), axes, "min")

    def mean(self, x: ir.Value, dims: Sequence[int], axes: Sequence[int]) -> ir.Value:
        """Return the mean over static dimensions ``dims`` and the ranks along ``axes``."""
        sizes = [size for d, size in enumerate(shape_of(x)) if d in dims and size is not None]
        assert len(sizes) == len(dims), f"{x.type}: the mean of a symbolic dimension"
        count = math.prod(sizes) * self.local.mesh.extent(tuple(axes))
        return self.scaled(self.sum(x, dims, axes), 1.0 / count)

    def as_result(self, x: ir.Value, index: int = 0) -> ir.Value:
        """Return ``x`` cast to the element type of result ``index`` of the op."""
        return self.cast(x, ir.RankedTensorType(self.local.result_types[index]).element_type)
