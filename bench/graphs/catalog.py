"""Catalogue of the models by name, at the sizes of the papers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from graphs.alexnet import AlexNet
from graphs.bert import Bert
from graphs.builder import Builder
from graphs.gpt import Gpt
from graphs.inception import Inception
from graphs.llama import Llama
from graphs.lstm import Lstm
from graphs.resnet import ResNet
from graphs.translation import Translation
from graphs.vgg import Vgg

__all__ = ["MODELS", "Model"]


class Model(Protocol):
    """A frozen dataclass with the sizes of a model as its fields."""

    def build(self, name: str) -> Builder:
        """Return the graph, called ``name``."""
        ...


MODELS: Mapping[str, Model] = {
    "alexnet": AlexNet(),
    "vgg16": Vgg(),
    "inception_v3": Inception(),
    "resnet152": ResNet(),
    "wrn50_2": ResNet(layers=50, widen=2),
    "lstm": Lstm(),
    "lstm_unrolled": Lstm(unrolled=True),
    "transformer_base": Translation(width=512, heads=8),
    "transformer_big": Translation(),
    "bert_large": Bert(),
    "gpt3_13b": Gpt(layers=40, width=5120, heads=40),
    "gpt3_175b": Gpt(),
    "llama3_8b": Llama(),
    "llama3_70b": Llama(layers=80, width=8192, heads=64, inner=28672),
    "mixtral_8x7b": Llama(vocabulary=32000, experts=8, spread=1e6),
}
