"""Export: writes trained weights into the original ONNX model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from tensoropt.runtime.ops import library
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError, cause_of, did_you_mean
from tensoropt.runtime.support.files import PAGE_BYTES
from tensoropt.runtime.training.checkpoint import DTYPES, Facts, facts_text, weights_of
from tensoropt.runtime.training.constants import constants, tensor_bytes, tensor_dtype
from tensoropt.runtime.training.inference import for_inference
from tensoropt.runtime.training.integrity import check_tensors

if TYPE_CHECKING:
    import onnx

__all__ = ["export_model"]

_INLINE = 1 << 30  # largest size of weights stored in the graph's file, which is limited to 2 GiB

# All fields of a TensorProto for its elements or their location.
_DATA_FIELDS = (
    "float_data",
    "int32_data",
    "int64_data",
    "uint64_data",
    "double_data",
    "raw_data",
    "external_data",
    "data_location",
)


def export_model(model: Path, checkpoint: Path, out: Path) -> None:
    """Write ``model`` to ``out`` with the parameters and buffers of a checkpoint.

    Initializers and constants of the main graph take the checkpoint's tensor with their name.
    Nodes with a training mode are changed to inference (:func:`for_inference`). The rest of the
    graph, its names and other weights are unchanged. Weights of 1 GiB or more, and all weights of a
    model with external data, are written to ``<out>.data``, one tensor at a time. Raises
    `UserError` if a tensor does not fit, or a file cannot be written.
    """
    import onnx

    exported = onnx.load(model, load_external_data=False)
    for_inference(exported)
    places = dict(constants(exported))
    trained = weights_of(checkpoint)
    check_tensors(checkpoint)
    for name, facts in trained.items():
        _check(checkpoint, name, facts, places)
    try:
        _write(exported, places, model.parent, checkpoint, set(trained), out)
    except OSError as error:
        raise UserError(f"--export {out}: {cause_of(error)}") from None


def _check(
    checkpoint: Path, name: str, facts: Facts, places: Mapping[str, onnx.TensorProto]
) -> None:
    if name not in places:
        near = did_you_mean(name, places)
        raise UserError(f"{checkpoint}: the model has no weight '{name}'{near}")
    dtype = tensor_dtype(places[name]).name
    expected: Facts = (DTYPES.get(dtype, dtype), *places[name].dims)
    if facts != expected:
        raise UserError(
            f"{checkpoint}: tensor '{name}': expected {facts_text(expected)}, "
            f"got: {facts_text(facts)}"
        )


def _write(
    model: onnx.ModelProto,
    places: Mapping[str, onnx.TensorProto],
    folder: Path,
    checkpoint: Path,
    trained: set[str],
    out: Path,
) -> None:
    """Write both files under temporary names, the data first, and rename them."""
    size = sum(tensor_bytes(places[name]) for name in trained)
    is_inline = size < _INLINE and not any(map(_is_outside, places.values()))
    data = None if is_inline else out.with_name(f"{out.name}.data")
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as name:
        aside = Path(name) / "data"
        if data is None:
            _fill(places, folder, checkpoint, trained, None, "")
        else:
            with aside.open("wb") as file:
                _fill(places, folder, checkpoint, trained, file, data.name)
            aside.replace(data)
        graph = Path(name) / "graph"
        graph.write_bytes(model.SerializeToString())
        graph.replace(out)


def _is_outside(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.data_location == 1)  # TensorProto.EXTERNAL


def _fill(
    places: Mapping[str, onnx.TensorProto],
    folder: Path,
    checkpoint: Path,
    trained: set[str],
    data: IO[bytes] | None,
    location: str,
) -> None:
    """Set the elements of trained tensors; with ``data``, write all external tensors to it."""
    from onnx import numpy_helper
    from safetensors import safe_open

    with safe_open(checkpoint, "np") as file:
        for name, tensor in places.items():
            library.move()
            if name in trained:
                _set(tensor, file.get_tensor(name), data, location)
            elif _is_outside(tensor):
                _set(tensor, numpy_helper.to_array(tensor, str(folder)), data, location)


def _set(tensor: onnx.TensorProto, array: Array, data: IO[bytes] | None, location: str) -> None:
    import onnx

    for field in _DATA_FIELDS:
        tensor.ClearField(field)
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if data is None:
        tensor.raw_data = raw.tobytes()
        return
    data.write(bytes(-data.tell() % PAGE_BYTES))
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", data.tell()), ("length", raw.nbytes)):
        tensor.external_data.add(key=key, value=str(value))
    data.write(raw.data)
