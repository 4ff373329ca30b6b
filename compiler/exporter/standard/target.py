"""The file to which a changed model is written, without its weights."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx.external_data_helper import uses_external_data

from tensoropt.compiler.support.errors import UserError

__all__ = ["check_target"]


def check_target(proto: onnx.ModelProto, model: Path, target: Path, flag: str) -> None:
    """Raise UserError unless ``model`` can be written to ``target``, with a flag of that name.

    External data can only be read from the folder of the model.
    """
    where = f"{flag} {target}"
    outside = any(uses_external_data(tensor) for tensor in proto.graph.initializer)
    if outside and target.resolve().parent != model.resolve().parent:
        raise UserError(
            f"{where}: the weights are in files next to the model, "
            f"expected a file in {model.resolve().parent}"
        )
    if target.exists() and target.samefile(model):
        raise UserError(f"{where}: is the model itself, expected another name")
