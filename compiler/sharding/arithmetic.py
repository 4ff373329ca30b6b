"""Building several ops in place of one: arithmetic whose types follow from the operands."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tensoropt.compiler.sharding.local import LocalOp, float_attr, int_attr, ints_attr, tensor_type
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir

__all__ = ["BROADCAST_VERSION", "NARROW", "Arithmetic", "sum_bytes"]

BROADCAST_VERSION = 8
"""The first opset in which arithmetic, Max and Min included, broadcasts as NumPy does."""

NARROW = frozenset(("float16", "bfloat16"))
"""Element types too narrow to add up many values in."""

# The first opset in which a reduction takes its axes as an operand; 18 for the others.
_AXES_OPERAND = {"ReduceSum": 13}

# The first opset in which Pad takes them, and what it fills them with, as operands.
_PAD_OPERANDS_SINCE = 11


def sum_bytes(dtype: str, item_bytes: int) -> int:
    """Return the bytes per element of a sum of ``dtype``, see :meth:`Arithmetic.wide`."""
    return 4 if dtype in NARROW else item_bytes


@dataclass(frozen=True)
class Arithmetic:
    """Builds ops of the standard domain for ``local``."""

    local: LocalOp

    def unary(self, op_type: str, x: Any) -> Any:
        """Return an elementwise op of one operand."""
        return self.local.onnx(op_type, [x], x.type)

    def binary(self, op_type: str, a: Any, b: Any) -> Any:
        """Return an elementwise op of two operands of one element type, broadcast."""
        shape = _broadcast(_shape(a), _shape(b))
        return self.local.onnx(op_type, [a, b], tensor_type(shape, _element(a)))

    def scaled(self, x: Any, factor: float) -> Any:
        """Return ``x`` times a constant."""
        return self.binary("Mul", x, self.scalar(factor, x))

    def scalar(self, value: float, like: Any) -> Any:
        """Return a constant of the element type of ``like``."""
        return self.local.constant(self.like(value, like))

    def like(self, values: Any, like: Any) -> Any:
        """Return an array of ``values``, of the element type of ``like``."""
        import numpy as np

        element = element_of(str(_element(like)))
        assert element is not None
        return np.array(values, element.dtype)

    def finite(self, x: Any) -> Any:
        """Return ``x`` with infinities replaced by the largest finite values."""
        import numpy as np

        element = element_of(str(_element(x)))
        assert element is not None
        largest = float(np.finfo(element.dtype).max)
        below = self.binary("Min", x, self.scalar(largest, x))
        return self.binary("Max", below, self.scalar(-largest, x))

    def reduce(self, op_type: str, x: Any, dims: Sequence[int]) -> Any:
        """Return ``x`` reduced over ``dims``, which become 1."""
        import numpy as np

        shape = [1 if d in dims else size for d, size in enumerate(_shape(x))]
        result, keep = tensor_type(shape, _element(x)), int_attr(1)
        if self.local.info.standard_version < _AXES_OPERAND.get(op_type, 18):
            return self.local.onnx(op_type, [x], result, axes=ints_attr(dims), keepdims=keep)
        axes = self.local.constant(np.array(dims, np.int64))
        return self.local.onnx(op_type, [x, axes], result, keepdims=keep)

    def sum(self, x: Any, dims: Sequence[int], axes: Sequence[int]) -> Any:
        """Return the sum of ``x`` over tensor dimensions ``dims`` and the ranks along ``axes``."""
        return self.local.all_reduce(self.reduce("ReduceSum", x, dims), axes, "sum")

    def max(self, x: Any, dims: Sequence[int], axes: Sequence[int]) -> Any:
        """Return the maximum over tensor dimensions ``dims`` and the ranks along ``axes``."""
        return self.local.all_reduce(self.reduce("ReduceMax", x, dims), axes, "max")

    def min(self, x: Any, dims: Sequence[int], axes: Sequence[int]) -> Any:
        """Return the minimum over tensor dimensions ``dims`` and the ranks along ``axes``."""
        return self.local.all_reduce(self.reduce("ReduceMin", x, dims), axes, "min")

    def mean(self, x: Any, dims: Sequence[int], axes: Sequence[int]) -> Any:
        """Return the mean over static dimensions ``dims`` and the ranks along ``axes``."""
        sizes = [size for d, size in enumerate(_shape(x)) if d in dims and size is not None]
        assert len(sizes) == len(dims), f"{x.type}: the mean of a symbolic dimension"
        count = math.prod(sizes) * self.local.mesh.extent(tuple(axes))
        return self.scaled(self.sum(x, dims, axes), 1.0 / count)

    def reshape(self, x: Any, shape: Sequence[int]) -> Any:
        """Return ``x`` with a static ``shape``."""
        import numpy as np

        sizes = self.local.constant(np.array(shape, np.int64))
        return self.local.onnx("Reshape", [x, sizes], tensor_type(list(shape), _element(x)))

    def squeeze(self, x: Any, dims: Sequence[int]) -> Any:
        """Return ``x`` without ``dims``, which are 1."""
        import numpy as np

        shape = [size for d, size in enumerate(_shape(x)) if d not in dims]
        result = tensor_type(shape, _element(x))
        if self.local.info.standard_version < 13:
            return self.local.onnx("Squeeze", [x], result, axes=ints_attr(dims))
        axes = self.local.constant(np.array(dims, np.int64))
        return self.local.onnx("Squeeze", [x, axes], result)

    def take(self, x: Any, indices: Any, dim: int) -> Any:
        """Return the elements of ``x`` along ``dim`` that ``indices`` (int64, 1-D) name."""
        shape = _shape(x)
        shape[dim] = _shape(indices)[0]
        result = tensor_type(shape, _element(x))
        return self.local.onnx("Gather", [x, indices], result, axis=int_attr(dim))

    def concat(self, parts: Sequence[Any], dim: int) -> Any:
        """Return ``parts`` joined along ``dim``, where all are static; itself if it is one."""
        if len(parts) == 1:
            return parts[0]
        shape = _shape(parts[0])
        shape[dim] = sum(_shape(part)[dim] or 0 for part in parts)
        result = tensor_type(shape, _element(parts[0]))
        return self.local.onnx("Concat", list(parts), result, axis=int_attr(dim))

    def pad(self, x: Any, dim: int, ends: tuple[int, int], fill: float) -> Any:
        """Return ``x`` with ``ends`` elements of ``fill`` before and behind static ``dim``."""
        import numpy as np

        shape, pads = _shape(x), np.zeros((2, len(_shape(x))), np.int64)
        pads[:, dim] = ends
        shape[dim] = (shape[dim] or 0) + sum(ends)
        result, mode = tensor_type(shape, _element(x)), ir.StringAttr.get("constant")
        if self.local.info.standard_version < _PAD_OPERANDS_SINCE:
            held = {"pads": ints_attr(pads.reshape(-1).tolist()), "value": float_attr(fill)}
            return self.local.onnx("Pad", [x], result, mode=mode, **held)
        operands = [x, self.local.constant(pads.reshape(-1)), self.scalar(fill, x)]
        return self.local.onnx("Pad", operands, result, mode=mode)

    def wide(self, x: Any) -> Any:
        """Return ``x`` as float32 if its own type is too narrow for sums."""
        element = element_of(str(_element(x)))
        narrow = element is not None and element.numpy in NARROW
        return self.cast(x, ir.F32Type.get()) if narrow else x

    def cast(self, x: Any, element: Any) -> Any:
        """Return ``x`` with elements of type ``element``; itself if it has them already."""
        held = element_of(str(element))
        assert held is not None
        if _element(x) == element:
            return x
        to = int_attr(held.number)
        return self.local.onnx("Cast", [x], tensor_type(_shape(x), element), to=to)

    def as_result(self, x: Any, index: int = 0) -> Any:
        """Return ``x`` cast to the element type of result ``index`` of the op."""
        return self.cast(x, ir.RankedTensorType(self.local.result_types[index]).element_type)


def _element(x: Any) -> Any:
    return ir.RankedTensorType(x.type).element_type


def _shape(x: Any) -> list[int | None]:
    kind = ir.RankedTensorType(x.type)
    return [None if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank)]


def _broadcast(a: Sequence[int | None], b: Sequence[int | None]) -> list[int | None]:
    sizes = itertools.zip_longest(reversed(a), reversed(b), fillvalue=1)
    return [_stretched(*pair) for pair in sizes][::-1]


def _stretched(a: int | None, b: int | None) -> int | None:
    """Return the size of two broadcast together; a symbolic one gives way to one above 1."""
    known = [size for size in (a, b) if size is not None and size != 1]
    if known:
        return known[0]
    return None if None in (a, b) else 1
