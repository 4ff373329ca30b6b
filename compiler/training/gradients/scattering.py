"""Adding up by index, which is what the gradients of gathering do.

Sums are in float32 where the type is narrow. On the CPU, ONNX Runtime's ScatterND adds from several
threads at once without a lock and loses updates; what a rank runs is ScatterElements, into which
the sharding rule takes it apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.dialects.build import Build, element_type, int_attr, shape_of, sizes_of
from tensoropt.dialects.mlir import ir

__all__ = ["add_elements", "add_slices", "put_elements", "zeros_beside"]

_WIDTH = 32


def add_slices(make: Build, updates: ir.Value, indices: ir.Value, shape: Sequence[int]) -> ir.Value:
    """Return zeros of ``shape`` with each slice of ``updates`` added at its index.

    ``indices`` (int64) hold index tuples along their last dimension; before it they have the first
    dimensions of the updates, which may be split, as may rows and the dimensions of a slice.
    """
    return _added(make, "ScatterND", updates, indices, shape)


def add_elements(
    make: Build, updates: ir.Value, indices: ir.Value, dim: int, size: int
) -> ir.Value:
    """Return zeros of ``size`` along ``dim``, with each update added at its index along ``dim``."""
    shape = sizes_of(updates)
    shape[dim] = size
    return _added(make, "ScatterElements", updates, indices, shape, axis=int_attr(dim))


def _added(
    make: Build,
    op_type: str,
    updates: ir.Value,
    indices: ir.Value,
    shape: Sequence[int],
    **attribute: ir.Attribute,
) -> ir.Value:
    own = element_type(updates)
    wide = own if ir.FloatType(own).width >= _WIDTH else ir.F32Type.get()
    zeros = zeros_beside(make, indices, wide, shape)
    attribute["reduction"] = ir.StringAttr.get("add")
    operands = [zeros, indices, make.cast(updates, wide)]
    return make.cast(make.onnx(op_type, operands, zeros.type, **attribute), own)


def zeros_beside(
    make: Build, indices: ir.Value, element: ir.Type, shape: Sequence[int], *, shared: int = 0
) -> ir.Value:
    """Return zeros of type ``element``, made anew in each run.

    ONNX Runtime keeps, as long as a session lives, what follows from constants alone; so these
    follow from the indices, and the result may lie in their place. The first ``shared`` dimensions
    of both are the same and can be split; where other ones of the indices are, these are zeros of a
    sum.
    """
    nothing = make.cast(make.mul(indices, make.scalar(0, indices)), element)
    others = range(shared, len(shape_of(nothing)))
    zero = make.reduce("ReduceSum", nothing, others, keepdims=shared > 0)
    return make.expand(zero, shape)


def put_elements(
    make: Build, x: ir.Value, updates: ir.Value, indices: ir.Value, dim: int
) -> ir.Value:
    """Return ``x`` with each update in the place of the element at its index along ``dim``."""
    attributes = {"axis": int_attr(dim)}
    return make.onnx("ScatterElements", [x, indices, updates], x.type, **attributes)
