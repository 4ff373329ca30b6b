"""Element types by name: numpy's, ml_dtypes' for types that numpy lacks, and strings."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensoropt.runtime.support.errors import UserError

__all__ = [
    "ONNX_CODES",
    "STRING",
    "Array",
    "as_array",
    "dtype_of",
    "dtype_of_code",
    "is_native",
    "name_of",
]

Array = NDArray[Any]

# Codes (TensorProto.DataType) of the element types that numpy lacks.
ONNX_CODES = {
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 20,
}

STRING = "string"
"""String tensors are numpy arrays of objects. Each rank has its own; graphs never exchange
them."""

_NATIVE_CODES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: STRING,
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
}
_NAMES = {**_NATIVE_CODES, **{code: name for name, code in ONNX_CODES.items()}}


def is_native(name: str) -> bool:
    """Return whether numpy, and so ONNX Runtime's Python interface, supports the type."""
    return name not in ONNX_CODES


def dtype_of(name: str) -> np.dtype[np.generic]:
    """Return the numpy dtype called ``name``; raises `UserError` for an unknown name."""
    if name == STRING:
        return np.dtype(object)
    if not is_native(name):
        import ml_dtypes

        name = getattr(ml_dtypes, name)
    try:
        dtype: np.dtype[np.generic] = np.dtype(name)
    except TypeError:
        raise UserError(f"unknown element type, got: {name}") from None
    return dtype


def as_array(given: Any, dtype: np.dtype[Any]) -> Array:
    """Return ``given`` as an array; numbers and lists of Python, without a type, get ``dtype``.

    Unless that would change a whole number, or a fraction is for another type than a float. Raises
    TypeError or ValueError for anything that is no array.
    """
    array = np.asarray(given)
    if not isinstance(given, bool | int | float | list | tuple) or array.dtype.kind not in "biuf":
        return array
    is_whole = array.dtype.kind != "f"
    is_float = dtype.kind == "f" or not is_native(dtype.name)
    if not is_float and (dtype.kind not in "biu" or not is_whole):
        return array
    with np.errstate(over="ignore"):
        typed = array.astype(dtype)
    return typed if is_float or np.array_equal(typed, array) else array


@cache
def name_of(dtype: np.dtype[np.generic]) -> str:  # numpy's own property takes microseconds
    """Return the name of an array's dtype, the inverse of `dtype_of`."""
    return STRING if dtype.hasobject else dtype.name


def dtype_of_code(code: int) -> np.dtype[np.generic]:
    """Return the dtype of an ONNX type code; raises `UserError` if no array type has it."""
    if code not in _NAMES:
        raise UserError(f"arrays have no such element type, got: ONNX's number {code}")
    return dtype_of(_NAMES[code])
