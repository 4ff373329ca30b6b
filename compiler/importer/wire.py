"""A ModelProto without its weights: large `raw_data` becomes a reference into the model file.

The protobuf parser would copy every weight into memory. Here the fields are walked on a memory map
(only their headers are read), and each large `TensorProto.raw_data` is replaced by external data at
its offset in the same file. Weights inside and outside the model file are then read in the same
way. The layout of fields is the protobuf wire format (protobuf.dev, Encoding).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from tensoropt.compiler.protos.literals import LITERAL_ELEMENTS

__all__ = ["INLINE_KEY", "INLINE_LIMIT", "MalformedError", "model_without_weights"]

INLINE_LIMIT = 8 * LITERAL_ELEMENTS  # bytes: the size of the largest literal, of int64
INLINE_KEY = "topt.inline"

_LENGTH_DELIMITED = 2
_RAW_DATA = 9
_FIXED_BYTES = {1: 8, 5: 4}

_EXTERNAL = bytes([14 << 3, 1])  # the field data_location of a TensorProto

# The fields that lead to a TensorProto, by message (field numbers of onnx.proto).
_CHILDREN = {
    "Model": {7: "Graph", 25: "Function"},
    "Graph": {1: "Node", 5: "Tensor"},
    "Function": {7: "Node"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph"},
    "Tensor": {},
}


class MalformedError(ValueError):
    """The bytes are not a whole protobuf message."""


def model_without_weights(path: Path) -> bytes:
    """Return the bytes of the ModelProto in ``path``, with references for large inline weights.

    Raises :class:`MalformedError` if the file is empty, truncated or not a protobuf message.
    """
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            raise MalformedError("empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return b"".join(_rewrite(data, 0, len(data), "Model"))


def _rewrite(data: mmap.mmap, start: int, end: int, kind: str) -> Iterator[bytes]:
    """Yield the message in ``data[start:end]``; runs of untouched fields are copied in one piece.

    The field that makes a tensor external comes last, since the last value of a field wins and some
    writers set it explicitly.
    """
    children, copied, outside = _CHILDREN[kind], start, b""
    for number, first, payload, last in _fields(data, start, end):
        if last - payload <= INLINE_LIMIT:
            continue
        if kind == "Tensor" and number == _RAW_DATA:
            new, outside = _reference(payload, last - payload), _EXTERNAL
        elif number in children:
            inner = b"".join(_rewrite(data, payload, last, children[number]))
            new = _delimited(number, inner)
        else:
            continue
        yield data[copied:first]
        yield new
        copied = last
    yield data[copied:end]
    yield outside


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (number, start of the tag, start of the payload, end) of each field."""
    position = start
    while position < end:
        first = position
        key, position = _varint(data, position, end)
        number, wire = key >> 3, key & 7
        if wire == _LENGTH_DELIMITED:
            length, position = _varint(data, position, end)
        elif wire == 0:
            length = _varint(data, position, end)[1] - position
        elif wire in _FIXED_BYTES:
            length = _FIXED_BYTES[wire]
        else:
            raise MalformedError("other bytes")
        if number == 0 or position + length > end:
            raise MalformedError("truncated")
        yield number, first, position, position + length
        position += length


def _varint(data: mmap.mmap, position: int, end: int) -> tuple[int, int]:
    """Return the variable-length integer at ``position`` and its end."""
    value = shift = 0
    while position < end and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise MalformedError("truncated")


def _reference(offset: int, length: int) -> bytes:
    """Return the TensorProto fields that place its data in the model file."""
    entries = {"location": "", INLINE_KEY: "1", "offset": str(offset), "length": str(length)}
    pairs = (
        _delimited(13, _delimited(1, key.encode()) + _delimited(2, value.encode()))
        for key, value in entries.items()
    )
    return b"".join(pairs)


def _delimited(number: int, payload: bytes) -> bytes:
    return _encode(number << 3 | _LENGTH_DELIMITED) + _encode(len(payload)) + payload


def _encode(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
