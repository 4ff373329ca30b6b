"""ArgMax and ArgMin, also split along the searched dimension."""

from __future__ import annotations

import math

from tensoropt.compiler.layout.rule import InnerStep, Rule
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic, sum_bytes
from tensoropt.compiler.sharding.rule.factors import FactorMap, axis_of, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.dialects.build import int_attr, shape_of, tensor_type
from tensoropt.dialects.mlir import ir

__all__ = ["place_of_extremum"]

# Element types that ranks compare, and the first opset that compares integers.
_COMPARED = frozenset(("float16", "bfloat16", "float32", "float64", "int32", "int64"))
_COMPARED_SINCE = 12


@sharding_rule("ArgMax", "ArgMin")
def place_of_extremum(info: OpInfo) -> Rule:
    """Split every dimension; the searched dimension needs two all-reduces inside.

    The first finds the extremum over all ranks, the second the first (or last) index that has it.
    """
    tensor, rank = info.operand(0), len(info.shape(0))
    assert tensor is not None
    axis, keeps = axis_of(info, 0, rank), info.attribute("keepdims", 1) == 1
    can_split = tensor.dtype in _COMPARED and info.version >= _COMPARED_SINCE
    takes_last = bool(info.attribute("select_last_index", 0))  # padding would come last
    factors = [
        FactorMap({0: dim}, {0: dim - (dim > axis and not keeps)})
        if dim != axis
        else FactorMap({0: dim}, can_split=can_split, counted=True, padded=not takes_last)
        for dim in range(rank)
    ]
    kept = tuple(dim for dim in range(rank) if dim != axis)
    sizes = (sum_bytes(tensor.dtype, tensor.item_bytes), 8)
    inner = tuple(InnerStep((axis,), kept, size) for size in sizes)
    return rule_of(info, factors, localize=_localize, flops_per_point=1.0, inner=inner)


def _localize(local: LocalOp) -> list[ir.Value]:
    axis = axis_of(local.info, 0, len(local.info.shape(0)))
    if local.pieces(axis) == 1:
        return local.clone()
    make = Arithmetic(local)
    fill = -math.inf if local.info.name == "ArgMax" else math.inf
    x = make.wide(local.fill_padding(local.operands[0], axis, axis, fill))
    reduce, how = ("ReduceMax", "max") if local.info.name == "ArgMax" else ("ReduceMin", "min")
    own = make.reduce(reduce, x, [axis])
    best = local.all_reduce(own, local.axes(axis), how)
    has_best = make.compare("Equal", own, best)
    place = _first_of_all(make, has_best, _place(make, x, own, axis), axis)
    return [place if local.info.attribute("keepdims", 1) else make.squeeze(place, [axis])]


def _place(make: Arithmetic, x: ir.Value, like: ir.Value, axis: int) -> ir.Value:
    """Return the global index of the rank's own extremum, with the sizes of ``like``."""
    import numpy as np

    local = make.local
    last = int_attr(int(local.info.attribute("select_last_index", 0)))
    attributes = {"axis": int_attr(axis), "keepdims": int_attr(1), "select_last_index": last}
    numbers = tensor_type(shape_of(like), ir.IntegerType.get_signless(64))
    found = local.onnx(local.info.name, [x], numbers, **attributes)
    start = local.axis_constant(np.arange(local.pieces(axis)) * local.part(axis), local.axes(axis))
    return make.binary("Add", found, start)


def _first_of_all(make: Arithmetic, holds: ir.Value, place: ir.Value, axis: int) -> ir.Value:
    """Return the first (or last, if the op says so) index over the ranks that have the extremum.

    If no rank has it, because nothing equals NaN, the result is an end of the dimension.
    """
    import numpy as np

    local, size = make.local, make.local.info.shape(0)[axis] or 0
    last = bool(local.info.attribute("select_last_index", 0))
    loses, how = (0, "max") if last else (size - 1, "min")
    other = local.constant(np.array(loses, np.int64))
    kept = local.onnx("Where", [holds, place, other], place.type)
    return local.all_reduce(kept, local.axes(axis), how)
