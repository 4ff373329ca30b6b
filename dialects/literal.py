"""NumPy arrays to MLIR literals and back."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from tensoropt.dialects.mlir import ir

__all__ = ["array_of", "dense", "element_dtype", "element_type"]

Array = npt.NDArray[np.generic]


@cache
def _dtypes() -> dict[str, np.dtype[Any]]:
    """Element types by their MLIR text."""
    plain = {"i1": np.bool_, "f16": np.float16, "f32": np.float32, "f64": np.float64}
    signed = {f"i{n}": f"int{n}" for n in (8, 16, 32, 64)}
    unsigned = {f"ui{n}": f"uint{n}" for n in (8, 16, 32, 64)}
    extended = {
        "bf16": ml_dtypes.bfloat16,
        "f8E4M3FN": ml_dtypes.float8_e4m3fn,
        "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
        "f8E5M2": ml_dtypes.float8_e5m2,
        "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    }
    return {text: np.dtype(t) for text, t in (plain | signed | unsigned | extended).items()}


def element_dtype(element: ir.Type) -> np.dtype[Any]:
    """Return the NumPy type of an MLIR element type; ``KeyError`` where there is none."""
    return _dtypes()[str(element)]


def element_type(dtype: np.dtype[Any]) -> ir.Type:
    """Return the MLIR element type of a NumPy type; inverse of :func:`element_dtype`."""
    return ir.Type.parse({held: text for text, held in _dtypes().items()}[np.dtype(dtype)])


def dense(array: Array) -> ir.DenseElementsAttr:
    """Return the array as a literal of signless integers, unsigned integers, booleans or floats."""
    element = element_type(array.dtype)
    data = np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype == np.bool_:
        return ir.DenseElementsAttr.get(data)
    if array.dtype.kind == "V":  # ml_dtypes types have no buffer format: hand over their bits
        data = data.view(np.uint8 if array.dtype.itemsize == 1 else np.uint16)
    return ir.DenseElementsAttr.get(data, type=element)


def array_of(literal: ir.DenseElementsAttr) -> Array:
    """Return the value of a literal; inverse of :func:`dense`."""
    dtype = element_dtype(literal.type.element_type)
    if dtype.kind != "V":
        return np.array(literal)
    return _parse_floats(str(literal), dtype, tuple(literal.type.shape))


def _parse_floats(text: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Read a literal of a type that the bindings cannot convert from its text: decimal or bits."""
    words = re.findall(r"0x[0-9A-Fa-f]+|-?\d[\d.]*(?:[eE][-+]?\d+)?", text.split(":")[0])
    bits = np.uint8 if dtype.itemsize == 1 else np.uint16
    values = [
        np.array(int(w, 16), bits).view(dtype) if w.startswith("0x") else dtype.type(float(w))
        for w in words
    ]
    flat = np.array(values, dtype=dtype)
    return (
        np.broadcast_to(flat.reshape(()), shape).copy() if flat.size == 1 else flat.reshape(shape)
    )
