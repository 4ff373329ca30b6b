"""Inference messages of gRPC: requests have raw or typed contents, answers raw contents."""

from __future__ import annotations

from typing import Any

from tensoropt.runtime.support.dtypes import Array, name_of
from tensoropt.serving.protocol.messages import (
    InferTensorContents,
    ModelInferRequest,
    ModelInferResponse,
)
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.protocol.requests import SMALL, Answer, Infer
from tensoropt.serving.protocol.tensors import (
    DATATYPES,
    Requested,
    from_raw,
    from_values,
    to_raw,
)

__all__ = ["is_long_to_read", "read_call", "read_call_bytes", "write_call"]

_FIELDS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def is_long_to_read(request: ModelInferRequest) -> bool:
    """Return True if `read_call` is slow: it is for long typed contents, and for strings."""
    raw = sum(map(len, request.raw_input_contents))
    has_texts = any(entry.datatype == "BYTES" for entry in request.inputs)
    return request.ByteSize() - (0 if has_texts else raw) > SMALL


def read_call_bytes(message: bytes) -> Infer:
    """Parse the request in a serialized message; raises `RefusedError`."""
    return read_call(ModelInferRequest.FromString(message))


def read_call(request: ModelInferRequest) -> Infer:
    """Convert a message to a request; raises `RefusedError`."""
    raws = request.raw_input_contents
    if raws and len(raws) != len(request.inputs):
        raise _invalid(
            f"raw_input_contents: expected {len(request.inputs)}, one per input, got: {len(raws)}"
        )
    inputs: dict[str, Array] = {}
    for index, entry in enumerate(request.inputs):
        if entry.name in inputs:
            raise _invalid(f"input '{entry.name}': expected it once, got: twice")
        inputs[entry.name] = _read(entry, raws[index] if raws else None)
    outputs = tuple(_requested(entry) for entry in request.outputs)
    return Infer(inputs, outputs or None, request.id, is_binary=True)


def _invalid(text: str) -> RefusedError:
    return RefusedError(Reason.INVALID, text)


def _read(entry: ModelInferRequest.InferInputTensor, raw: bytes | None) -> Array:
    if "shared_memory_region" in entry.parameters:
        raise _invalid(f"input '{entry.name}': the extension of shared memory is not served")
    shape = list(entry.shape)
    if any(size < 0 for size in shape):
        raise _invalid(f"input '{entry.name}': expected sizes as 'shape', got: {shape}")
    if raw is not None:
        if entry.HasField("contents"):
            raise _invalid(f"input '{entry.name}': expected raw contents alone, got: both")
        return from_raw(entry.name, entry.datatype, shape, raw)
    values = _contents(entry.name, entry.datatype, entry.contents)
    return from_values(entry.name, entry.datatype, shape, values)


def _contents(name: str, datatype: str, contents: InferTensorContents) -> list[Any]:
    field = _FIELDS.get(datatype)
    if field is None and datatype in DATATYPES.values():
        raise _invalid(f"input '{name}': {datatype} has no field, expected raw_input_contents")
    for other, _ in contents.ListFields():
        if other.name != field:
            raise _invalid(f"input '{name}': expected {field} for {datatype}, got: {other.name}")
    return list(getattr(contents, field)) if field is not None else []


def _requested(entry: ModelInferRequest.InferRequestedOutputTensor) -> Requested:
    for name in ("shared_memory_region", "classification"):
        if name in entry.parameters:
            raise _invalid(f"output '{entry.name}': the extension of '{name}' is not served")
    return Requested(entry.name, is_binary=True)


def write_call(answer: Answer) -> ModelInferResponse:
    """Convert an answer to a message."""
    response = ModelInferResponse(
        model_name=answer.model, model_version=answer.version, id=answer.id
    )
    for requested, array in answer.outputs:
        datatype = DATATYPES[name_of(array.dtype)]
        response.outputs.add(name=requested.name, datatype=datatype, shape=array.shape)
        response.raw_output_contents.append(to_raw(array))
    return response
