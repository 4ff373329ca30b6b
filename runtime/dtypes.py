"""Element types by name: numpy's, and those of ml_dtypes that numpy lacks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensoropt.runtime.errors import UserError

__all__ = ["ONNX_CODES", "Array", "dtype_of", "is_native"]

Array = NDArray[Any]

# ONNX's numbers (TensorProto.DataType) of the element types that numpy has no name for.
ONNX_CODES = {
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 20,
}


def is_native(name: str) -> bool:
    """Say whether numpy itself, and so ONNX Runtime's Python interface, knows the type."""
    return name not in ONNX_CODES


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the numpy dtype called ``name``; raises `UserError` where there is none."""
    if not is_native(name):
        import ml_dtypes

        name = getattr(ml_dtypes, name)
    try:
        dtype: np.dtype[Any] = np.dtype(name)
    except TypeError:
        raise UserError(f"unknown element type, got: {name}") from None
    return dtype
