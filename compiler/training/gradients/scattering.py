"""Addition by index, which the gradients of gathering use.

Narrow types are summed in float32. On the CPU, ONNX Runtime's ScatterND adds from several threads
without a lock and loses updates; a rank runs ScatterElements instead, which the sharding rule
rewrites it to.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.dialects.build import Build, element_type, int_attr, shape_of, sizes_of, wide_type
from tensoropt.dialects.mlir import ir

__all__ = ["add_elements", "add_slices", "put_elements", "zeros_of_run"]


def add_slices(make: Build, updates: ir.Value, indices: ir.Value, shape: Sequence[int]) -> ir.Value:
    """Return zeros of ``shape`` with each slice of ``updates`` added at its index.

    ``indices`` (int64) contain index tuples along their last dimension; their other dimensions are
    the first dimensions of the updates. These can be split, and so can rows and the dimensions of a
    slice.
    """
    return _add(make, "ScatterND", updates, indices, shape)


def add_elements(
    make: Build, updates: ir.Value, indices: ir.Value, dim: int, size: int
) -> ir.Value:
    """Return zeros of ``size`` along ``dim``, with each update added at its index along ``dim``."""
    shape = sizes_of(updates)
    shape[dim] = size
    return _add(make, "ScatterElements", updates, indices, shape, axis=int_attr(dim))


def _add(
    make: Build,
    op_type: str,
    updates: ir.Value,
    indices: ir.Value,
    shape: Sequence[int],
    **attribute: ir.Attribute,
) -> ir.Value:
    own = element_type(updates)
    wide = wide_type(own)
    zeros = zeros_of_run(make, indices, wide, shape)
    attribute["reduction"] = ir.StringAttr.get("add")
    operands = [zeros, indices, make.cast(updates, wide)]
    return make.cast(make.onnx(op_type, operands, zeros.type, **attribute), own)


def zeros_of_run(
    make: Build, indices: ir.Value, element: ir.Type, shape: Sequence[int], *, shared: int = 0
) -> ir.Value:
    """Return zeros of type ``element`` that are computed in each run.

    ONNX Runtime keeps values that depend only on constants for the life of a session. These zeros
    depend on the indices instead, so the result can reuse their buffer. The first ``shared``
    dimensions of both are the same and can be split; if other dimensions of the indices are split,
    the zeros are a partial sum.
    """
    nothing = make.cast(make.mul(indices, make.scalar(0, indices)), element)
    others = range(shared, len(shape_of(nothing)))
    zero = make.reduce("ReduceSum", nothing, others, keepdims=shared > 0)
    return make.expand(zero, shape)


def put_elements(
    make: Build, x: ir.Value, updates: ir.Value, indices: ir.Value, dim: int
) -> ir.Value:
    """Return ``x`` with the element at each index along ``dim`` replaced by its update."""
    attributes = {"axis": int_attr(dim)}
    return make.onnx("ScatterElements", [x, indices, updates], x.type, **attributes)
