"""Modules of models, by class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graphs.bert import Bert
from graphs.catalog import Model
from graphs.gpt import Gpt
from graphs.llama import Llama
from graphs.lstm import Lstm
from graphs.residual import Residual
from graphs.resnet import ResNet
from graphs.vit import Vit
from torch import nn

from torch_models.bert import TorchBert
from torch_models.gpt import TorchGpt
from torch_models.llama import TorchLlama
from torch_models.lstm import TorchLstm
from torch_models.residual import TorchResidual
from torch_models.resnet import TorchResNet
from torch_models.vit import TorchVit
from torch_models.weights import load_weights

__all__ = ["torch_model"]

_MODULES: Mapping[type, Callable[[Any], nn.Module]] = {
    Bert: TorchBert,
    Gpt: TorchGpt,
    Llama: TorchLlama,
    Lstm: TorchLstm,
    Residual: TorchResidual,
    ResNet: TorchResNet,
    Vit: TorchVit,
}


def torch_model(model: Model, path: Path) -> nn.Module:
    """Return the module of ``model`` with the weights of ``path``, its ONNX file."""
    return load_weights(_MODULES[type(model)](model), path)
