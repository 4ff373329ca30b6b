"""Adding up rows by index, which is what the gradients of gathering do.

ScatterElements and not ScatterND: on the CPU, ONNX Runtime's ScatterND adds from several threads
at once without a lock, and loses updates of the same element.
"""

from __future__ import annotations

from typing import Any

from tensoropt.dialects.build import Build, element_type, int_attr, shape_of
from tensoropt.dialects.mlir import ir

__all__ = ["add_elements", "add_rows", "put_elements"]


def add_rows(make: Build, updates: Any, indices: Any, dim: int, size: int) -> Any:
    """Return zeros of ``size`` along ``dim``, with slice i of ``updates`` added at ``indices[i]``.

    ``indices`` has one dimension, that of ``updates`` along ``dim``. Linear in the updates.
    """
    shape = [n or 0 for n in shape_of(updates)]
    others = [d for d in range(len(shape)) if d != dim]
    column = make.unsqueeze(indices, others) if others else indices
    return add_elements(make, updates, make.expand(column, shape), dim, size)


def add_elements(make: Build, updates: Any, indices: Any, dim: int, size: int) -> Any:
    """Return zeros of ``size`` along ``dim``, with each update added at its index along ``dim``.

    Narrow types are added in float32, like partial sums.
    """
    own = element_type(updates)
    wide = own if ir.FloatType(own).width >= 32 else ir.F32Type.get()
    shape = shape_of(updates)
    shape[dim] = size
    updates = make.cast(updates, wide)
    zeros = make.expand(make.scalar(0.0, updates), [n or 0 for n in shape])
    held = {"axis": int_attr(dim), "reduction": ir.StringAttr.get("add")}
    summed = make.onnx("ScatterElements", [zeros, indices, updates], zeros.type, **held)
    return make.cast(summed, own)


def put_elements(make: Build, x: Any, updates: Any, indices: Any, dim: int) -> Any:
    """Return ``x`` with each update in the place of the element at its index along ``dim``."""
    held = {"axis": int_attr(dim)}
    return make.onnx("ScatterElements", [x, indices, updates], x.type, **held)
