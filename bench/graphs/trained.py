"""Very small models that are trained in sweeps and tests: a loss on `scores`, `labels`."""

from __future__ import annotations

from collections.abc import Mapping

from graphs.catalog import Model
from graphs.gpt import Gpt
from graphs.llama import Llama
from graphs.lstm import Lstm
from graphs.residual import Residual
from graphs.vit import Vit

__all__ = ["LOSS", "TRAINED"]

LOSS = "softmax-cross-entropy:scores,labels"
"""The loss as a flag of tensoropt-opt; it fits the models of the papers too."""

TRAINED: Mapping[str, Model] = {
    "cnn": Residual(batch=8, image=16, blocks=1, width=8, pooled=True),
    "gpt2": Gpt(layers=2, width=32, heads=4, vocabulary=64, sequence=8, batch=8, dtype="float32"),
    "gpt2_packed": Gpt(
        layers=2,
        width=32,
        heads=4,
        vocabulary=64,
        sequence=8,
        batch=8,
        dtype="float32",
        thirds=True,
    ),
    "llama": Llama(
        layers=2,
        width=32,
        heads=4,
        groups=2,
        inner=48,
        vocabulary=64,
        sequence=8,
        batch=8,
        dtype="float32",
    ),
    "vit": Vit(batch=8, image=16, classes=8, layers=2, width=32, heads=4, patch=4),
    "lstm": Lstm(width=32, vocabulary=64, sequence=8, batch=8, rows_first=True),
}
