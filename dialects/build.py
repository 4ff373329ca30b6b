"""Builder of `onnx.*` operations that infers their result types."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensoropt.dialects.elements import element_of, to_dense
from tensoropt.dialects.kernels import is_bfloat16, is_lacking
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.opsets import PAD_OPERANDS_SINCE, SQUEEZE_OPERANDS_SINCE
from tensoropt.dialects.sizes import tensor_type

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "Build",
    "broadcast",
    "element_type",
    "float_attr",
    "int_attr",
    "ints_attr",
    "is_float",
    "onnx_attr",
    "shape_of",
    "sizes_of",
    "tensor_type",
    "wide_type",
]

# First opset in which a reduction takes its axes as an operand; 18 for all others.
_AXES_OPERAND = {"ReduceSum": 13}


def int_attr(value: int) -> ir.IntegerAttr:
    """Return an ONNX attribute of kind int."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def float_attr(value: float) -> ir.FloatAttr:
    """Return an ONNX attribute of kind float."""
    return ir.FloatAttr.get(ir.F32Type.get(), value)


def ints_attr(values: Sequence[int]) -> ir.DenseI64ArrayAttr:
    """Return an ONNX attribute of kind ints."""
    return ir.DenseI64ArrayAttr.get(list(values))


def onnx_attr(value: float | str | Sequence[int]) -> ir.Attribute:
    """Return an ONNX attribute of kind int, float, string, or ints."""
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    if isinstance(value, int):
        return int_attr(value)
    return float_attr(value) if isinstance(value, float) else ints_attr(value)


def element_type(x: ir.Value) -> ir.Type:
    """Return the MLIR type of the elements of a tensor value."""
    return ir.RankedTensorType(x.type).element_type


def shape_of(x: ir.Value) -> list[int | None]:
    """Return the shape of a ranked value; ``None`` marks a symbolic dimension."""
    kind = ir.RankedTensorType(x.type)
    return [None if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank)]


def sizes_of(x: ir.Value) -> list[int]:
    """Return the shape of a value as integers; 0 stands for a symbolic dimension."""
    return [size or 0 for size in shape_of(x)]


def is_float(value: ir.Value) -> bool:
    """Return whether a value is a ranked tensor of floating point numbers."""
    if not isinstance(value.type, ir.RankedTensorType):
        return False
    element = element_of(str(value.type.element_type))
    return element is not None and element.is_float


def wide_type(kind: ir.Type) -> ir.Type:
    """Return float32 if ``kind`` is too narrow for sums, otherwise ``kind``."""
    return ir.F32Type.get() if isinstance(kind, ir.F16Type | ir.BF16Type) else kind


def broadcast(a: Sequence[int | None], b: Sequence[int | None]) -> list[int | None]:
    """Return the broadcast of two shapes, following NumPy."""
    sizes = itertools.zip_longest(reversed(a), reversed(b), fillvalue=1)
    return [_stretched(*pair) for pair in sizes][::-1]


def _stretched(a: int | None, b: int | None) -> int | None:
    """Return the broadcast of two sizes; a known size above 1 wins over a symbolic size."""
    known = [size for size in (a, b) if size is not None and size != 1]
    if known:
        return known[0]
    return None if None in (a, b) else 1


@dataclass(frozen=True)
class Build:
    """Builds ops of the standard domain, in version ``opset``, at the current insertion point.

    ``marks`` are attributes (``topt.*``) that every op gets. Shapes use ``None`` for a symbolic
    dimension.
    """

    location: ir.Location
    opset: int
    marks: Mapping[str, ir.Attribute] = field(default_factory=dict)

    def onnx_many(
        self,
        op_type: str,
        operands: Sequence[ir.Value],
        results: Sequence[ir.Type],
        **attributes: ir.Attribute,
    ) -> list[ir.Value]:
        """Return the results of a new ``onnx.<op_type>``; attributes are MLIR attributes.

        An op without a bfloat16 kernel in ONNX Runtime is computed in float32.
        """
        types = [value.type for value in operands]
        if is_lacking(op_type, self.opset, types, results, attributes):
            return self._widened(op_type, operands, results, **attributes)
        return [*self._create(op_type, operands, results, attributes).results]

    def _widened(
        self,
        op_type: str,
        operands: Sequence[ir.Value],
        results: Sequence[ir.Type],
        **attributes: ir.Attribute,
    ) -> list[ir.Value]:
        wide = [self.cast(v, ir.F32Type.get()) if is_bfloat16(v.type) else v for v in operands]
        kinds = [
            ir.RankedTensorType.get(ir.RankedTensorType(kind).shape, ir.F32Type.get())
            if is_bfloat16(kind)
            else kind
            for kind in results
        ]
        found = self.onnx_many(op_type, wide, kinds, **attributes)
        pairs = zip(found, results, strict=True)
        return [self.cast(v, ir.BF16Type.get()) if is_bfloat16(kind) else v for v, kind in pairs]

    def _create(
        self,
        op_type: str,
        operands: Sequence[ir.Value],
        results: Sequence[ir.Type],
        attributes: Mapping[str, ir.Attribute],
    ) -> ir.Operation:
        return ir.Operation.create(
            f"onnx.{op_type}",
            results=list(results),
            operands=list(operands),
            attributes={**self.marks, **attributes},
            loc=self.location,
        )

    def onnx(
        self,
        op_type: str,
        operands: Sequence[ir.Value],
        result: ir.Type,
        **attributes: ir.Attribute,
    ) -> ir.Value:
        """Return the one result of a new ``onnx.<op_type>``; attributes are MLIR attributes."""
        return self.onnx_many(op_type, operands, [result], **attributes)[0]

    def no_value(self) -> ir.Value:
        """Return the value that represents an omitted operand or result."""
        return self.onnx("NoValue", [], ir.NoneType.get())

    def constant(self, array: npt.NDArray[np.generic]) -> ir.Value:
        """Return a literal, the same on every rank."""
        value = to_dense(array)
        return self.onnx("Constant", [], value.type, value=value)

    def ints(self, values: Sequence[int]) -> ir.Value:
        """Return a one-dimensional int64 literal."""
        import numpy as np

        return self.constant(np.array(values, np.int64))

    def unary(self, op_type: str, x: ir.Value, **attributes: ir.Attribute) -> ir.Value:
        """Return the result of an elementwise op of one operand."""
        return self.onnx(op_type, [x], x.type, **attributes)

    def binary(self, op_type: str, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return the result of an elementwise op of two operands of one element type, broadcast."""
        return self.onnx(
            op_type, [a, b], tensor_type(broadcast(shape_of(a), shape_of(b)), element_type(a))
        )

    def add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return ``a + b``, broadcast."""
        return self.binary("Add", a, b)

    def sub(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return ``a - b``, broadcast."""
        return self.binary("Sub", a, b)

    def mul(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return ``a * b``, broadcast."""
        return self.binary("Mul", a, b)

    def div(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return ``a / b``, broadcast."""
        return self.binary("Div", a, b)

    def compare(self, op_type: str, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return the booleans of Equal, Less, Greater, ... of two operands, broadcast."""
        shape = broadcast(shape_of(a), shape_of(b))
        return self.onnx(op_type, [a, b], tensor_type(shape, ir.IntegerType.get_signless(1)))

    def where(self, condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return ``a`` where ``condition`` is true and ``b`` elsewhere, all broadcast."""
        shape = broadcast(shape_of(condition), broadcast(shape_of(a), shape_of(b)))
        return self.onnx("Where", [condition, a, b], tensor_type(shape, element_type(a)))

    def scaled(self, x: ir.Value, factor: float) -> ir.Value:
        """Return ``x`` times a constant."""
        return self.mul(x, self.scalar(factor, x))

    def shifted(self, x: ir.Value, term: float) -> ir.Value:
        """Return ``x`` plus a constant."""
        return self.add(x, self.scalar(term, x))

    def scalar(self, value: float, like: ir.Value) -> ir.Value:
        """Return a rank-0 constant of the element type of ``like``."""
        return self.constant(self.like(value, like))

    def like(self, values: npt.ArrayLike, like: ir.Value) -> npt.NDArray[np.generic]:
        """Return an array of ``values``, of the element type of ``like``."""
        import numpy as np

        element = element_of(str(element_type(like)))
        assert element is not None
        return np.array(values, element.dtype)

    def zeros(self, like: ir.Value) -> ir.Value:
        """Return zeros of the static shape and element type of ``like``, expanded from a scalar."""
        return self.expand(self.scalar(0, like), sizes_of(like))

    def expand(self, x: ir.Value, shape: Sequence[int]) -> ir.Value:
        """Return ``x`` broadcast to a static ``shape``."""
        sizes = self.ints(shape)
        return self.onnx("Expand", [x, sizes], tensor_type(list(shape), element_type(x)))

    def reduce(
        self, op_type: str, x: ir.Value, dims: Sequence[int], *, keepdims: bool = True
    ) -> ir.Value:
        """Return ``x`` reduced over ``dims``, which become 1 or, without ``keepdims``, vanish."""
        sizes = enumerate(shape_of(x))
        shape = [1 if d in dims else size for d, size in sizes if keepdims or d not in dims]
        result, keep = tensor_type(shape, element_type(x)), int_attr(int(keepdims))
        if self.opset < _AXES_OPERAND.get(op_type, 18):
            return self.onnx(op_type, [x], result, axes=ints_attr(dims), keepdims=keep)
        return self.onnx(op_type, [x, self.ints(dims)], result, keepdims=keep)

    def reshape(self, x: ir.Value, shape: Sequence[int]) -> ir.Value:
        """Return ``x`` with a static ``shape``."""
        import numpy as np

        if 0 in shape:  # Reshape reads a 0 as "copy this size"
            return self.constant(self.like(np.zeros(shape), x))
        sizes = self.ints(shape)
        return self.onnx("Reshape", [x, sizes], tensor_type(list(shape), element_type(x)))

    def shaped(self, x: ir.Value, shape: Sequence[int]) -> ir.Value:
        """Return ``x`` with a static ``shape``, without a Reshape if it already has that shape."""
        return x if shape_of(x) == list(shape) else self.reshape(x, shape)

    def transpose(self, x: ir.Value, perm: Sequence[int]) -> ir.Value:
        """Return ``x`` with its dimensions in the order ``perm``; ``x`` itself for the identity."""
        if list(perm) == list(range(len(perm))):
            return x
        sizes = shape_of(x)
        result = tensor_type([sizes[d] for d in perm], element_type(x))
        return self.onnx("Transpose", [x], result, perm=ints_attr(perm))

    def swapped(self, x: ir.Value) -> ir.Value:
        """Return ``x`` with its last two dimensions swapped."""
        rank = len(shape_of(x))
        return self.transpose(x, [*range(rank - 2), rank - 1, rank - 2])

    def matmul(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return the matrix product of two tensors of at least two dimensions each."""
        left, right = shape_of(a), shape_of(b)
        batch = broadcast(left[:-2], right[:-2])
        result = tensor_type([*batch, left[-2], right[-1]], element_type(a))
        return self.onnx("MatMul", [a, b], result)

    def squeeze(self, x: ir.Value, dims: Sequence[int]) -> ir.Value:
        """Return ``x`` without ``dims``, which are 1."""
        shape = [size for d, size in enumerate(shape_of(x)) if d not in dims]
        return self._squeezed("Squeeze", x, dims, shape)

    def unsqueeze(self, x: ir.Value, dims: Sequence[int]) -> ir.Value:
        """Return ``x`` with a new dimension of 1 at each of ``dims`` of the result."""
        sizes, rank = iter(shape_of(x)), len(shape_of(x)) + len(dims)
        shape = [1 if d in dims else next(sizes) for d in range(rank)]
        return self._squeezed("Unsqueeze", x, dims, shape)

    def _squeezed(
        self, op_type: str, x: ir.Value, dims: Sequence[int], shape: Sequence[int | None]
    ) -> ir.Value:
        result = tensor_type(shape, element_type(x))
        if self.opset < SQUEEZE_OPERANDS_SINCE:
            return self.onnx(op_type, [x], result, axes=ints_attr(dims))
        return self.onnx(op_type, [x, self.ints(dims)], result)

    def take(self, x: ir.Value, indices: ir.Value, dim: int) -> ir.Value:
        """Return the elements of ``x`` along ``dim`` that ``indices`` (int64, 1-D) name."""
        shape = shape_of(x)
        shape[dim] = shape_of(indices)[0]
        result = tensor_type(shape, element_type(x))
        return self.onnx("Gather", [x, indices], result, axis=int_attr(dim))

    def slice(self, x: ir.Value, dim: int, start: int, stop: int, step: int = 1) -> ir.Value:
        """Return the elements ``start`` up to ``stop``, exclusive, along ``dim``; both in range."""
        shape = shape_of(x)
        shape[dim] = len(range(start, stop, step))
        bounds = [self.ints([n]) for n in (start, stop, dim, step)]
        return self.onnx("Slice", [x, *bounds], tensor_type(shape, element_type(x)))

    def concat(self, parts: Sequence[ir.Value], dim: int) -> ir.Value:
        """Return ``parts`` joined along ``dim``; a single part unchanged."""
        if len(parts) == 1:
            return parts[0]
        shape, sizes = shape_of(parts[0]), [shape_of(part)[dim] for part in parts]
        shape[dim] = None if None in sizes else sum(size or 0 for size in sizes)
        result = tensor_type(shape, element_type(parts[0]))
        return self.onnx("Concat", list(parts), result, axis=int_attr(dim))

    def pad(self, x: ir.Value, dim: int, ends: tuple[int, int], fill: float) -> ir.Value:
        """Return ``x`` with ``ends`` elements of ``fill`` added before and after static ``dim``."""
        import numpy as np

        shape, pads = shape_of(x), np.zeros((2, len(shape_of(x))), np.int64)
        pads[:, dim] = ends
        shape[dim] = (shape[dim] or 0) + sum(ends)
        result, mode = tensor_type(shape, element_type(x)), ir.StringAttr.get("constant")
        if self.opset < PAD_OPERANDS_SINCE:
            attributes = {"pads": ints_attr(pads.reshape(-1).tolist()), "value": float_attr(fill)}
            return self.onnx("Pad", [x], result, mode=mode, **attributes)
        operands = [x, self.constant(pads.reshape(-1)), self.scalar(fill, x)]
        return self.onnx("Pad", operands, result, mode=mode)

    def wide(self, x: ir.Value) -> ir.Value:
        """Return ``x`` in float32 if its type is too narrow for sums."""
        return self.cast(x, wide_type(element_type(x)))

    def cast(self, x: ir.Value, element: ir.Type) -> ir.Value:
        """Return ``x`` cast to ``element``; ``x`` itself if it already has that element type."""
        target = element_of(str(element))
        assert target is not None
        if element_type(x) == element:
            return x
        to = int_attr(target.number)
        return self.onnx("Cast", [x], tensor_type(shape_of(x), element), to=to)
