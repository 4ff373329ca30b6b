"""Preparation of a model for training: operators that have gradients, and static shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import onnx

from tensoropt.compiler.support import native
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.gradients.registry import TRAINING_OPSET
from tensoropt.runtime.plan.dims import dim_flags

__all__ = ["check_static", "convert_opset", "may_train"]

_PLACE = re.compile(r"^\S+:\d+: [\w()]+: ")
"""The place in the converter's source where it failed."""

_FREE_INITIALIZERS_SINCE = 4
"""The version of ONNX's format from which initializers need not also be inputs."""

_FLOATS = {
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
    onnx.TensorProto.DOUBLE,
}


def check_static(path: Path, graph: onnx.GraphProto) -> None:
    """Raise :class:`UserError` that names the symbolic dimensions of the inputs, if any."""
    stored = {tensor.name for tensor in graph.initializer}
    given = [info.type.tensor_type.shape.dim for info in graph.input if info.name not in stored]
    names = dict.fromkeys(dim.dim_param for dims in given for dim in dims if dim.dim_param)
    if names:
        flags = dim_flags(names, "SIZE")
        raise UserError(f"{path}: training needs static shapes, expected {flags}")


def convert_opset(path: Path, proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``proto`` with its standard operators in ``TRAINING_OPSET`` or later.

    Weights by reference stay references. Raises :class:`UserError` if ONNX has no conversion.
    """
    versions = [entry.version for entry in proto.opset_import if not entry.domain]
    if not versions or versions[0] >= TRAINING_OPSET:
        return proto
    # With an older format, the converter requires initializers to be inputs too.
    proto.ir_version = max(proto.ir_version, _FREE_INITIALIZERS_SINCE)
    seconds = native.seconds_for(len(proto.graph.node))
    try:
        model_bytes = native.call(_convert, proto.SerializeToString(), seconds=seconds)
    except (native.NativeError, native.NativeFailureError) as error:
        text = _PLACE.sub("", " ".join(str(error).split()))
        raise UserError(
            f"{path}: training needs opset {TRAINING_OPSET} or later, and "
            f"onnx.version_converter does not convert this model of opset {versions[0]}: {text}"
        ) from None
    return onnx.ModelProto.FromString(model_bytes)


def _convert(model: bytes) -> bytes:
    """Return the model in ``TRAINING_OPSET``; runs in the child."""
    from onnx import version_converter

    proto = onnx.ModelProto.FromString(model)
    return bytes(version_converter.convert_version(proto, TRAINING_OPSET).SerializeToString())


def may_train(tensor: onnx.TensorProto, trained: Mapping[str, bool]) -> bool:
    """Return whether an initializer of one element is a parameter to train, such as a bias.

    ``trained`` is the exporter's metadata. Without it, a scalar without dimensions is taken for a
    constant of a formula.
    """
    return trained.get(tensor.name, bool(tensor.dims)) and tensor.data_type in _FLOATS
