"""Open sizes of ONNX's shape inference, determined from the symbolic dimensions around them.

Inference names each size that it does not know. A reshape preserves the number of elements, so
names on both sides cancel: [b, seq, 64] to [b, seq, ?, 16] leaves 4. The dimensions that a product
sums over are equal. Both hold for all sizes except 0, for which a reshape determines nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

import onnx

__all__ = ["Dims", "dims_of", "open_sizes", "reshape_literal", "substitute"]

Dims = list[int | str]
"""A size or its name per dimension; "" is a distinct name for each dimension without a name."""

Types = Mapping[str, onnx.TypeProto]


def dims_of(kind: onnx.TypeProto | None) -> Dims | None:
    """Return the dimensions of a tensor type, or ``None`` if it has no rank."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    return [
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param for d in dims
    ]


def open_sizes(graph: onnx.GraphProto, types: Types) -> dict[str, int]:
    """Return the sizes found, by the names that inference assigned; linear in the nodes."""
    own = {d for info in graph.input for d in dims_of(info.type) or () if isinstance(d, str)}
    found: dict[str, int] = {}
    for node in graph.node:
        finder = _FINDERS.get(node.op_type)
        if finder is not None and not node.domain:
            found.update((k, n) for k, n in finder(node, types) if k and k not in own)
    return found


def _reshape(node: onnx.NodeProto, types: Types) -> Iterator[tuple[str, int]]:
    source, result = (dims_of(types.get(n)) for n in (node.input[0], node.output[0]))
    if source is None or result is None or "" in (*source, *result):
        return
    here, there = (Counter(d for d in dims if isinstance(d, str)) for dims in (source, result))
    known, wanted = (math.prod(d for d in dims if isinstance(d, int)) for dims in (source, result))
    left = there - here
    if not here - there and left.total() == 1 and wanted and known % wanted == 0:
        yield next(iter(left)), known // wanted


def _matmul(node: onnx.NodeProto, types: Types) -> Iterator[tuple[str, int]]:
    left, right = (dims_of(types.get(name)) for name in node.input)
    if not left or not right:
        return
    a, b = (
        left[-1],
        right[-2:][0],
    )  # a vector has one dimension
    if isinstance(a, str) and isinstance(b, int):
        yield a, b
    if isinstance(b, str) and isinstance(a, int):
        yield b, a


_FINDERS = {"Reshape": _reshape, "MatMul": _matmul}


def substitute(graph: onnx.GraphProto, sizes: Mapping[str, int]) -> None:
    """Replace names by ``sizes`` in all types of inner values and outputs."""
    for info in (*graph.value_info, *graph.output):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]


def reshape_literal(source: Dims, result: Dims) -> list[int] | None:
    """Return the shape operand of a Reshape (without allowzero) from ``source`` to ``result``.

    It contains known sizes, 0 if the operand has the same name in the same place, and at most one
    -1. ``None`` if that is not sufficient. With a -1, ONNX Runtime refuses to run if a copied
    dimension has size 0.
    """
    if 0 in result:
        return None
    literal = [
        d if isinstance(d, int) else 0 if d and source[at : at + 1] == [d] else -1
        for at, d in enumerate(result)
    ]
    return literal if literal.count(-1) <= 1 else None
