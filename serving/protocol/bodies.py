"""HTTP bodies: JSON, followed by the bytes of binary tensors.

Binary tensors are an extension of the protocol. A header of the request has the length of the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tensoropt.runtime.support.dtypes import Array, name_of
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.protocol.requests import SMALL, Answer, Infer
from tensoropt.serving.protocol.tensors import (
    DATATYPES,
    Requested,
    from_raw,
    from_values,
    to_raw,
    to_values,
)

__all__ = ["LENGTH_HEADER", "is_long_to_read", "is_long_to_write", "read_body", "write_body"]

LENGTH_HEADER = "inference-header-content-length"

_VALUE = 8  # approximate bytes of a value in JSON
_NOT_HERE = ("shared_memory_region", "classification")


def read_body(body: bytes | bytearray, json_length: str | None) -> Infer:
    """Parse the request in ``body``; ``json_length`` is the header of a body with binary tensors.

    Binary tensors are views of ``body``. Raises `RefusedError`.
    """
    size = _json_size(json_length, len(body))
    document = _parse_json(body[:size])
    inputs, raw = {}, memoryview(body)[size:]
    for entry in _list(document, "inputs", "the request"):
        name, array, raw = _read_input(entry, raw)
        if name in inputs:
            raise _invalid(f"input '{name}': expected it once, got: twice")
        inputs[name] = array
    if len(raw):
        raise _invalid(f"body: expected its end after the last input, got: {len(raw)} bytes more")
    has_id = document.get("id") is not None
    number = _text(document, "id", "the request") if has_id else ""
    return Infer(inputs, _read_outputs(document), number, _binary_default(document))


def is_long_to_read(body: bytes | bytearray, json_length: str | None) -> bool:
    """Return True if `read_body` is slow: it is for long JSON, and for many binary strings."""
    size = _json_size(json_length, len(body))
    return size > SMALL or (len(body) > SMALL and b'"BYTES"' in body[:size])


def is_long_to_write(answer: Answer) -> bool:
    """Return True if `write_body` is slow: it is for many values in JSON, or many strings."""
    slow = (a.size for asked, a in answer.outputs if a.dtype.hasobject or not asked.is_binary)
    return sum(slow) > SMALL // _VALUE


def _invalid(text: str) -> RefusedError:
    return RefusedError(Reason.INVALID, text)


def _json_size(text: str | None, size: int) -> int:
    if text is None:
        return size
    digits = text.lstrip("0")[:20] or "0"  # enough for any length: int() refuses 5,000 digits
    if not (text.isascii() and text.isdecimal()) or int(digits) > size:
        raise _invalid(f"Inference-Header-Content-Length: expected at most {size}, got: {text:.20}")
    return int(digits)


def _parse_json(text: bytes | bytearray) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"body: expected JSON: {str(error).splitlines()[0]:.80}") from None
    if not isinstance(document, dict):
        raise _invalid(f"body: expected a JSON object, got: {type(document).__name__}")
    return document


def _list(document: Mapping[str, Any], field: str, where: str) -> list[dict[str, Any]]:
    found = document.get(field)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise _invalid(f"{where}: expected a list of objects as '{field}'")
    return found


def _text(entry: Mapping[str, Any], field: str, where: str) -> str:
    found = entry.get(field)
    if not isinstance(found, str):
        raise _invalid(f"{where}: expected a string as '{field}', got: {found!r:.40}")
    return found


def _parameters(entry: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    found = entry.get("parameters", {})
    if not isinstance(found, dict):
        raise _invalid(f"{where}: expected an object as 'parameters', got: {found!r:.40}")
    for name in _NOT_HERE:
        if found.get(name):
            raise _invalid(f"{where}: the extension of '{name}' is not served")
    return found


def _binary_default(document: Mapping[str, Any]) -> bool:
    return _parameters(document, "the request").get("binary_data_output") is True


def _shape(entry: Mapping[str, Any], where: str) -> list[int]:
    found = entry.get("shape")
    if not isinstance(found, list) or not all(type(size) is int and size >= 0 for size in found):
        raise _invalid(f"{where}: expected a list of sizes as 'shape', got: {found!r:.40}")
    return found


def _read_input(entry: Mapping[str, Any], raw: memoryview) -> tuple[str, Array, memoryview]:
    """Return an input's name and tensor, and the rest of ``raw``."""
    name = _text(entry, "name", "an input")
    where = f"input '{name}'"
    datatype, shape = _text(entry, "datatype", where), _shape(entry, where)
    size = _parameters(entry, where).get("binary_data_size")
    if size is None:
        if not isinstance(entry.get("data"), list):
            raise _invalid(f"{where}: expected a list as 'data', or binary_data_size")
        return name, from_values(name, datatype, shape, entry["data"]), raw
    if type(size) is not int or not 0 <= size <= len(raw):
        raise _invalid(f"{where}: binary_data_size: expected at most {len(raw)}, got: {size!r:.20}")
    return name, from_raw(name, datatype, shape, raw[:size]), raw[size:]


def _read_outputs(document: Mapping[str, Any]) -> tuple[Requested, ...] | None:
    if not document.get("outputs"):
        return None
    default, found = _binary_default(document), list[Requested]()
    for entry in _list(document, "outputs", "the request"):
        name = _text(entry, "name", "an output")
        is_binary = _parameters(entry, f"output '{name}'").get("binary_data", default)
        found.append(Requested(name, is_binary is True))
    return tuple(found)


def write_body(answer: Answer) -> tuple[bytes, int | None]:
    """Return the body of an answer, and the length of its JSON if binary tensors follow."""
    entries, pieces = [], []
    for requested, array in answer.outputs:
        entry: dict[str, Any] = {
            "name": requested.name,
            "datatype": DATATYPES[name_of(array.dtype)],
            "shape": list(array.shape),
        }
        if requested.is_binary:
            pieces.append(to_raw(array))
            entry["parameters"] = {"binary_data_size": len(pieces[-1])}
        else:
            entry["data"] = to_values(array)
        entries.append(entry)
    document = {"model_name": answer.model, "model_version": answer.version, "outputs": entries}
    if answer.id:
        document["id"] = answer.id
    head = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    return b"".join([head, *pieces]), len(head) if pieces else None
