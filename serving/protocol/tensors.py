"""The protocol's encoding of tensors: element types, shapes and contents."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensoropt.runtime.support.dtypes import STRING, Array, dtype_of
from tensoropt.runtime.support.errors import UserError, did_you_mean
from tensoropt.serving.protocol.refusals import Reason, RefusedError

__all__ = ["DATATYPES", "Requested", "TensorSpec", "from_raw", "from_values", "to_raw", "to_values"]

DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bfloat16": "BF16",
    STRING: "BYTES",
}
"""The protocol's element types, by their names in plans."""

_NAMES = {datatype: name for name, datatype in DATATYPES.items()}
_KINDS: dict[str, set[type]] = {
    "b": {bool},
    "u": {int},
    "i": {int},
    "f": {int, float},
    "V": {int, float},
}
_WORDS = {"b": "true and false", "u": "integers", "i": "integers", "f": "numbers", "V": "numbers"}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""JSON lacks these numbers: the strings are from protobuf's JSON mapping."""

_ROWS = "data: expected a list of rows of one length"
_MOST_DIMENSIONS = 64  # numpy's limit
_MOST_BYTES = (1 << 63) - 1  # numpy's limit, which counts a size of 0 as 1


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a model: ``dtype`` as in plans, a name for each symbolic dimension.

    ``allowed`` has the sizes that the plan allows for a name, if it restricts them.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    allowed: Mapping[str, range] = field(default_factory=dict, hash=False)

    @property
    def datatype(self) -> str:
        """The protocol's name of the element type; raises `UserError` if the protocol lacks it."""
        if self.dtype not in DATATYPES:
            raise UserError(f"'{self.name}': the protocol has no element type {self.dtype}")
        return DATATYPES[self.dtype]


@dataclass(frozen=True)
class Requested:
    """An output that a request names, and its encoding: binary or JSON."""

    name: str
    is_binary: bool = False


def _refused(name: str, text: str) -> RefusedError:
    return RefusedError(Reason.INVALID, f"input '{name}': {text}")


def _dtype(name: str, datatype: str) -> np.dtype[np.generic]:
    if datatype not in _NAMES:
        near = did_you_mean(datatype, _NAMES)
        raise _refused(name, f"datatype: expected one of the protocol's, got: '{datatype}'{near}")
    return dtype_of(_NAMES[datatype])


def from_raw(name: str, datatype: str, shape: Sequence[int], raw: bytes | memoryview) -> Array:
    """Return a tensor that is a view of row-major bytes; strings are copied.

    Each string follows its length, in four bytes, little-endian. Raises `RefusedError`.
    """
    dtype = _dtype(name, datatype)
    _check_shape(name, shape, dtype)
    if dtype.hasobject:
        return _reshape(name, list(_strings(name, memoryview(raw))), dtype, shape)
    expected = math.prod(shape) * dtype.itemsize
    if len(raw) != expected:
        raise _refused(
            name,
            f"expected {expected} bytes for {datatype} of shape {list(shape)}, got: {len(raw)}",
        )
    # Other bytes would be booleans that are neither true nor false.
    if datatype == "BOOL" and raw and np.frombuffer(raw, np.uint8).max() > 1:
        raise _refused(name, "expected bytes 0 and 1 for BOOL, got: others")
    return np.frombuffer(raw, dtype).reshape(shape)


def _strings(name: str, raw: memoryview) -> Iterator[str]:
    place = 0
    while place < len(raw):
        start = place + 4
        size = struct.unpack("<I", raw[place:start])[0] if start <= len(raw) else len(raw)
        place = start + size
        if place > len(raw):
            raise _refused(name, "expected strings, each with its length before it, got: others")
        yield _text(name, bytes(raw[start:place]))


def _text(name: str, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _refused(name, "expected strings in UTF-8, got: other bytes") from None


def from_values(name: str, datatype: str, shape: Sequence[int], values: Any) -> Array:
    """Return a tensor from a flat or nested list of numbers, booleans or strings.

    Numbers that JSON lacks are the strings "NaN", "Infinity" and "-Infinity". Raises
    `RefusedError`.
    """
    dtype = _dtype(name, datatype)
    _check_shape(name, shape, dtype)
    if dtype.hasobject:
        texts = [_string(name, value) for value in _elements(name, values)]
        return _reshape(name, texts, dtype, shape)
    return _reshape(name, _numbers(name, datatype, _elements(name, values), dtype), dtype, shape)


def _elements(name: str, values: Any) -> list[Any]:
    """Flatten nested lists; a ragged list leaves lists among the elements."""
    try:
        elements: list[Any] = np.array(values, object).ravel().tolist()
    except ValueError:
        raise _refused(name, _ROWS) from None
    return elements


def _numbers(name: str, datatype: str, elements: list[Any], dtype: np.dtype[np.generic]) -> Array:
    """Return numbers or booleans as an array; raises `RefusedError` for elements of other kinds."""
    kinds = set(map(type, elements))
    if list in kinds:
        raise _refused(name, _ROWS)
    if str in kinds and float in _KINDS[dtype.kind]:
        elements = [_NOT_FINITE.get(e, e) if type(e) is str else e for e in elements]
        kinds = set(map(type, elements))
    if not kinds <= _KINDS[dtype.kind]:
        raise _refused(name, f"data: expected {_WORDS[dtype.kind]} for {datatype}, got: others")
    is_float = float in _KINDS[dtype.kind]
    try:
        found: Array = np.array(elements, np.float64 if is_float else dtype)
    except OverflowError:
        raise _too_large(name, datatype) from None
    return _narrow(name, datatype, found, dtype) if is_float else found


def _narrow(name: str, datatype: str, found: Array, dtype: np.dtype[np.generic]) -> Array:
    with np.errstate(over="ignore"):
        cast: Array = found.astype(dtype)
    if not np.array_equal(np.isfinite(cast.astype(np.float64)), np.isfinite(found)):
        raise _too_large(name, datatype)
    return cast


def _too_large(name: str, datatype: str) -> RefusedError:
    return _refused(name, f"data: expected values that fit {datatype}, got: larger values")


def _string(name: str, value: Any) -> str:
    if isinstance(value, bytes):
        return _text(name, value)
    if not isinstance(value, str):
        raise _refused(name, f"data: expected strings for BYTES, got: {value!r:.40}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refused(name, f"data: expected Unicode, got: {value!r:.40}") from None
    return value


def _check_shape(name: str, shape: Sequence[int], dtype: np.dtype[np.generic]) -> None:
    """Refuse a shape that no array can have; sizes may have up to 4,300 digits."""
    if len(shape) > _MOST_DIMENSIONS:
        raise _refused(name, f"shape: expected at most {_MOST_DIMENSIONS} sizes, got: {len(shape)}")
    if math.prod(size or 1 for size in shape) * dtype.itemsize > _MOST_BYTES:
        text = ", ".join(map(str, shape))
        raise _refused(name, f"shape: expected less than 2^63 bytes, got: [{text:.80}]")


def _reshape(name: str, values: Any, dtype: np.dtype[np.generic], shape: Sequence[int]) -> Array:
    found: Array = np.array(values, dtype) if isinstance(values, list) else values
    if found.size != math.prod(shape):
        raise _refused(
            name, f"expected {math.prod(shape)} elements for shape {list(shape)}, got: {found.size}"
        )
    return found.reshape(shape)


def to_raw(array: Array) -> bytes:
    """Return a tensor's bytes, row-major; each string follows its length, in four bytes."""
    if not array.dtype.hasobject:
        return array.tobytes()
    texts = [str(text).encode() for text in array.ravel()]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def to_values(array: Array) -> list[Any]:
    """Return a tensor's elements as a flat list for JSON.

    NaN and infinities are strings, as in `from_values`.
    """
    if array.dtype.hasobject:
        return [str(text) for text in array.ravel()]
    flat = array.ravel()
    flat = flat.astype(np.float32) if flat.dtype.kind == "V" else flat
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        flat = _name_non_finite(flat)
    values: list[Any] = flat.tolist()
    return values


def _name_non_finite(flat: Array) -> Array:
    """Return numbers as objects, with strings for the numbers that JSON lacks."""
    named: Array = flat.astype(object)
    for name, value in _NOT_FINITE.items():
        named[np.isnan(flat) if math.isnan(value) else flat == value] = name
    return named
