"""Weights of a checkpoint for the PyTorch module that the model was exported from."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensoropt.runtime.support.errors import UserError, cause_of
from tensoropt.runtime.training.checkpoint import find_checkpoint, weights_of
from tensoropt.runtime.training.constants import constants
from tensoropt.runtime.training.integrity import check_tensors

if TYPE_CHECKING:
    import torch

__all__ = ["state_dict"]


def state_dict(
    checkpoint: str | PathLike[str], model: str | PathLike[str], module: torch.nn.Module
) -> dict[str, torch.Tensor]:
    """Return the trained weights for ``module.load_state_dict``, by their names in PyTorch.

    ``checkpoint`` is a checkpoint, or the latest in a folder. ``model`` is the ONNX model that was
    trained, which PyTorch exported from ``module``: weights that were not trained are in it. Tied
    weights have all their names. Buffers that the model lacks, such as ``num_batches_tracked``, are
    the module's own. Raises :class:`UserError` if a parameter is in neither file.
    """
    path = find_checkpoint(Path(checkpoint))
    weights = _initializers(Path(model)) | _trained(path)
    module_state = module.state_dict(keep_vars=True)
    names = _names_by_tensor(module_state)
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    state = {}
    for name, tensor in module_state.items():
        stored = next((tied for tied in names[id(tensor)] if tied in weights), None)
        if stored is not None:
            state[name] = _tensor(path, name, weights[stored], tensor)
        elif name in parameters:
            raise UserError(
                f"{path}: expected a weight '{name}', as the module has, got none: the exporter "
                "folded it into others or left it out, torch.onnx.export(..., optimize=False) "
                "keeps it"
            )
        else:
            state[name] = tensor.detach().clone()
    return state


def _names_by_tensor(state: Mapping[str, torch.Tensor]) -> dict[int, list[str]]:
    """Return all names of each tensor, by its identity."""
    names: dict[int, list[str]] = {}
    for name, tensor in state.items():
        names.setdefault(id(tensor), []).append(name)
    return names


def _trained(checkpoint: Path) -> dict[str, Any]:
    """Return the weights and buffers of a checkpoint, as PyTorch's tensors."""
    from safetensors import safe_open

    weights = weights_of(checkpoint)
    check_tensors(checkpoint)
    with safe_open(checkpoint, "pt") as file:
        return {name: file.get_tensor(name) for name in weights}


def _initializers(model: Path) -> dict[str, Any]:
    """Return the stored tensors of an ONNX model, as NumPy's arrays."""
    import onnx
    from onnx import numpy_helper

    try:
        proto = onnx.load(model)
        return {name: numpy_helper.to_array(tensor).copy() for name, tensor in constants(proto)}
    except Exception as error:  # onnx has no common exception type
        raise UserError(f"{model}: expected an ONNX model: {cause_of(error)}") from None


def _tensor(path: Path, name: str, stored: object, like: torch.Tensor) -> torch.Tensor:
    """Return a stored tensor in the type of the module's tensor."""
    import torch

    weight = torch.as_tensor(stored)
    if weight.shape != like.shape:
        expected, got = ("x".join(map(str, tensor.shape)) for tensor in (like, weight))
        raise UserError(f"{path}: '{name}': expected shape {expected} of the module, got: {got}")
    return weight.detach().to(like.dtype, copy=True)
