"""Operators that write or add elements by index."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.ops.indexing import (
    fill_indices,
    index_fills,
    mask_inside,
    position,
    scalar,
    where,
)
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.factors import (
    FactorMap,
    adds_up,
    axis_of,
    linear_in,
    present_factor,
    rule_of,
)
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.dialects.build import Build, element_type, int_attr, shape_of, sizes_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["row_numbers"]

# Element types that ONNX Runtime's ScatterElements adds on the CPU.
_ADDED = frozenset(("float32", "float64", "int32", "int64"))

# The most rows that a product adds up. With more, ScatterElements is no slower on the CPU.
_MOST_ROWS = 128


@sharding_rule("ScatterND")
def _scatter_nd(info: OpInfo) -> Rule | None:
    """Split the data dimensions after the indexed dimensions; the updates contain them whole.

    If updates are added, ranks can add disjoint updates to partial sums. If the updates are rows,
    the indexed dimension can be split: a rank adds the updates that fall into its part.
    """
    depth, outer = info.shape(1)[-1], len(info.shape(1)) - 1
    if depth is None:
        return None
    rest = range(depth, len(info.shape(0)))
    factors = [
        FactorMap({0: dim, 2: outer + at}, {0: dim}, padded=True) for at, dim in enumerate(rest)
    ]
    adds = _adds(info) and adds_up(info)
    if adds:
        factors += [FactorMap({1: dim, 2: dim}, reduction="sum") for dim in range(outer)]
    if _as_rows(info) and depth == 1:
        factors.append(FactorMap({0: 0}, {0: 0}, padded=True))
    linear = linear_in(info, *_groups(info))
    bias = (0,) if adds else ()
    return rule_of(info, factors, linear=linear, additive=bias, localize=_add_slices_locally)


def _adds(info: OpInfo) -> bool:
    return bool(info.attribute("reduction", "none") == "add")


def _groups(info: OpInfo) -> list[tuple[int, ...]]:
    """Return data and updates as one group: results add up for both replacing and adding."""
    return [(0, 2)] if info.attribute("reduction", "none") in ("none", "add") else []


def _as_rows(info: OpInfo) -> bool:
    """Return whether the local op is built from ScatterElements, with a type that it adds."""
    tensor, shapes = info.operand(0), [info.shape(index) for index in range(3)]
    static = shapes[1][-1] != 0 and not any(size is None for shape in shapes for size in shape)
    return _adds(info) and static and tensor is not None and tensor.dtype in _ADDED


def _add_slices_locally(local: LocalOp) -> list[ir.Value]:
    """Add slices with ScatterElements, because ScatterND loses updates to the same place.

    ONNX Runtime's CPU kernel adds from several threads without a lock.
    """
    if not _as_rows(local.info):
        return local.clone()
    make, (data, indices, updates) = Arithmetic(local), local.operands
    shape, places = sizes_of(data), sizes_of(indices)
    depth, count = places[-1], math.prod(places[:-1])
    width = math.prod(shape[depth:])
    updates = make.shaped(updates, [count, width])
    factor = local.rule.operands[0][0]
    if depth == 1 and factor is not None and local.pieces(factor) > 1:
        indices, updates = _own_rows(local, make, factor, updates)
    rows = make.shaped(row_numbers(make, indices, shape[:depth]), [count, 1])
    matrix = make.shaped(data, [math.prod(shape[:depth]), width])
    if _is_product(local, matrix):
        return [make.shaped(_added_by_product(make, matrix, rows, updates), shape)]
    attributes = {"axis": int_attr(0), "reduction": ir.StringAttr.get("add")}
    operands = [matrix, make.expand(rows, [count, width]), updates]
    return [make.shaped(make.onnx("ScatterElements", operands, matrix.type, **attributes), shape)]


def _is_product(local: LocalOp, matrix: ir.Value) -> bool:
    """Return whether a product adds the rows: in a gradient, of floating point, to few rows.

    Its ones must not take more memory than the expanded indices of ScatterElements. In a product an
    infinite update makes NaNs of all rows. That is harmless in a gradient, which an infinite
    element spoils anyway.
    """
    floats = isinstance(element_type(matrix), ir.F32Type | ir.F64Type)
    in_gradient = keys.PHASE.get(local.op.attributes) == "backward"
    count, width = sizes_of(matrix)
    return floats and in_gradient and 0 < count <= min(_MOST_ROWS, width)


def _added_by_product(make: Build, matrix: ir.Value, rows: ir.Value, updates: ir.Value) -> ir.Value:
    """Return ``matrix`` with each update added to its row, by a product with ones in these places.

    ScatterElements takes an index of 64 bits for each element, twice: four times the bytes of the
    updates. For the weights of 8 experts, gathered for each token, it also takes 19 times as long.
    """
    count = sizes_of(matrix)[0]
    below = make.compare("Less", rows, make.scalar(0, rows))
    wrapped = make.where(below, make.add(rows, make.ints([count])), rows)
    numbers = make.reshape(make.ints(range(count)), [1, count])
    ones = make.cast(make.compare("Equal", wrapped, numbers), element_type(matrix))
    return make.onnx("Gemm", [ones, updates, matrix], matrix.type, transA=int_attr(1))


def _own_rows(
    local: LocalOp, make: Build, factor: int, updates: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Return indices and updates (2-D) of one rank; rows of other ranks become zeros at 0."""
    size = local.info.shape(0)[0]
    assert size is not None
    own = position(local, size, factor)
    mine = mask_inside(local, own, local.part(factor))
    indices = where(local, mine, own, scalar(local, 1, 0))
    flags = make.reshape(mine, [sizes_of(updates)[0], 1])
    return indices, make.where(flags, updates, make.scalar(0.0, updates))


def row_numbers(make: Build, indices: ir.Value, sizes: Sequence[int]) -> ir.Value:
    """Return the row-major number of each index tuple in a tensor of ``sizes``.

    ``indices`` (int64) have a tuple along their last dimension, which the result lacks; negative
    indices count from the end.
    """
    last = len(shape_of(indices)) - 1
    if len(sizes) == 1:
        return make.squeeze(indices, [last])
    strides = [math.prod(sizes[dim + 1 :]) for dim in range(len(sizes))]
    below = make.compare("Less", indices, make.scalar(0, indices))
    wrapped = make.where(below, make.add(indices, make.ints(sizes)), indices)
    return make.reduce("ReduceSum", make.mul(wrapped, make.ints(strides)), [last], keepdims=False)


@sharding_rule("ScatterElements", "Scatter")
def _scatter_elements(info: OpInfo) -> Rule:
    """Split dimensions other than the axis in which the indices are as long as the data.

    If updates are added, the axis can be split, in two ways. With the axis of the data split, a
    rank adds the updates that fall into its part, and zeros for the others. With the axis of the
    updates split, ranks leave partial sums.
    """
    rank = len(info.shape(0))
    axis = axis_of(info, 0, rank)
    dims = [dim for dim in range(rank) if dim != axis]
    factors = [FactorMap(dict.fromkeys(range(3), d), {0: d}, padded=True, fills=True) for d in dims]
    adds = _adds(info) and adds_up(info)
    if adds:
        factors.append(FactorMap({0: axis}, {0: axis}, counted=True, padded=True))
        factors.append(FactorMap({1: axis, 2: axis}, reduction="sum"))
    linear = linear_in(info, *_groups(info))
    bias = (0,) if adds else ()
    return rule_of(
        info,
        factors,
        linear=linear,
        additive=bias,
        localize=_scatter_locally,
        inner=index_fills(info, factors),
    )


def _scatter_locally(local: LocalOp) -> list[ir.Value]:
    fill_indices(local)
    axis = axis_of(local.info, 0, len(local.info.shape(0)))
    factor, size = local.rule.operands[0][axis], local.info.shape(0)[axis]
    if factor is None or size is None or local.pieces(factor) == 1:
        return local.clone()
    own = position(local, size, factor)
    mine = mask_inside(local, own, local.part(factor))
    nothing = Arithmetic(local).scalar(0.0, local.operands[2])
    updates = where(local, mine, local.operands[2], nothing)
    return local.clone({1: where(local, mine, own, scalar(local, 1, 0)), 2: updates})


@sharding_rule("TensorScatter")
def _tensor_scatter(info: OpInfo) -> Rule:
    """Split every dimension of the cache except the axis along which rows are written."""
    rank = len(info.shape(0))
    axis = axis_of(info, -2, rank)
    dims = [dim for dim in range(rank) if dim != axis]
    factors = [present_factor(info, {0: d, 1: d, **({} if d else {2: 0})}, {0: d}) for d in dims]
    return rule_of(info, factors, linear=linear_in(info, (0, 1)))
