"""Weights of an ONNX model in a PyTorch module with parts named by the model's scopes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn

__all__ = ["Product", "add_numbered", "load_weights"]


class Product(nn.Linear):
    """A linear map with the ONNX weight as the right operand of a MatMul: [inputs, outputs]."""


def add_numbered(parent: nn.Module, name: str, parts: list[nn.Module]) -> tuple[nn.Module, ...]:
    """Register ``parts`` as ``name0``, ``name1``, ...; return them."""
    for number, part in enumerate(parts):
        parent.add_module(f"{name}{number}", part)
    return tuple(parts)


def load_weights(module: nn.Module, path: Path) -> nn.Module:
    """Fill ``module`` from the data of ``path`` and return it.

    Raises KeyError for a parameter that the file lacks, AssertionError for a tensor that the module
    lacks.
    """
    given = _read(path)
    with torch.no_grad():
        for prefix, part in module.named_modules():
            for own, array in _arrays(part, f"{prefix}." if prefix else "", given):
                tensor = getattr(part, own)
                assert tuple(tensor.shape) == array.shape, f"{prefix}.{own}"
                tensor.copy_(torch.from_numpy(np.array(array)))
    assert not given, f"not in the module: {', '.join(given)}"
    return module


def _read(path: Path) -> dict[str, Any]:
    model = onnx.load(path)
    # Constants are stored in the model itself, weights in external data.
    return {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer
        if not tensor.name.startswith("constant_")
    }


def _arrays(part: nn.Module, prefix: str, given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (parameter or buffer of ``part`` itself, its array), removed from ``given``."""
    if isinstance(part, nn.LSTM):
        yield from _lstm(prefix[:-1], given)
        return
    names = _NAMES.get(type(part), {})
    held = [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]
    for own, _ in held:
        if own != "num_batches_tracked":
            array = given.pop(prefix + names.get(own, own))
            yield own, array.T if isinstance(part, Product) and own == "weight" else array


_NAMES: Mapping[type, Mapping[str, str]] = {
    nn.BatchNorm2d: {"weight": "scale", "running_mean": "mean", "running_var": "variance"},
}


def _lstm(prefix: str, given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the arrays of an LSTM.

    ONNX has one bias of both kinds, and the gates in the order input, output, forget, cell.
    """
    turn: Callable[[Any], Any] = _gates
    yield "weight_ih_l0", turn(given.pop(f"{prefix}.input")[0])
    yield "weight_hh_l0", turn(given.pop(f"{prefix}.recurrent")[0])
    own, back = np.split(given.pop(f"{prefix}.bias")[0], 2)
    yield "bias_ih_l0", turn(own)
    yield "bias_hh_l0", turn(back)


def _gates(array: Any) -> Any:
    """Return the gates in PyTorch's order: input, forget, cell, output."""
    write, read, forget, new = np.split(array, 4)
    return np.concatenate([write, forget, new, read])
