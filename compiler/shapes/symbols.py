"""Sizes that ONNX's shape inference leaves open, found by the symbolic dimensions around them.

Inference names each size that it does not know. A reshape keeps the number of elements, so what is
on both sides by the same name cancels out: [b, seq, 64] to [b, seq, ?, 16] leaves 4. And the
dimensions that a product sums over are equal. Both hold for all sizes but 0, of which a reshape
tells nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

import onnx

__all__ = ["Dims", "dims_of", "open_sizes", "reshape_literal", "substitute"]

Dims = list[int | str]
"""A size or its name per dimension; a name of its own, "", for one that has none."""

Types = Mapping[str, onnx.TypeProto]


def dims_of(kind: onnx.TypeProto | None) -> Dims | None:
    """Return the dimensions of a tensor type, ``None`` where it has no rank."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    return [
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param for d in dims
    ]


def open_sizes(graph: onnx.GraphProto, types: Types) -> dict[str, int]:
    """Return the sizes found, by the names that inference gave them; linear in the nodes."""
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
    if left and right:
        yield from _equal(left[-1], right[-2:][0])


def _equal(one: int | str, other: int | str) -> Iterator[tuple[str, int]]:
    if isinstance(one, str) and isinstance(other, int):
        yield one, other
    if isinstance(other, str) and isinstance(one, int):
        yield other, one


_FINDERS = {"Reshape": _reshape, "MatMul": _matmul}


def substitute(graph: onnx.GraphProto, sizes: Mapping[str, int]) -> None:
    """Put the sizes in the place of their names, in all types of inner values and outputs."""
    for info in (*graph.value_info, *graph.output):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]


def reshape_literal(source: Dims, result: Dims) -> list[int] | None:
    """Return what a Reshape (without allowzero) from one to the other may be given as its shape.

    A size that is known; 0 where the operand has the same name in the same place; one -1. ``None``
    where that does not say it all. With a -1, ONNX Runtime refuses to run where a copied dimension
    is of size 0.
    """
    if 0 in result:
        return None
    literal = [
        d if isinstance(d, int) else 0 if d and source[at : at + 1] == [d] else -1
        for at, d in enumerate(result)
    ]
    return literal if literal.count(-1) <= 1 else None
