"""Models of the comparisons of speed, at sizes where a step takes milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from graphs.alexnet import AlexNet
from graphs.bert import Bert
from graphs.catalog import Model
from graphs.gpt import Gpt
from graphs.lstm import Lstm
from graphs.residual import Residual
from graphs.resnet import ResNet
from graphs.runnable import RUN, TRAINED
from graphs.translation import Translation
from graphs.vgg import Vgg

__all__ = ["BATCH_NORMALISED", "SPEED_RUN", "SPEED_SPLIT", "SPEED_TRAINED", "models_of_tokens"]

SPEED_TRAINED: Mapping[str, Model] = {
    "resnet20": Residual(batch=32),
    "resnet50": ResNet(layers=50, batch=16, image=64),
    "gpt2-5M": Gpt(
        layers=6, width=256, heads=8, vocabulary=2048, sequence=64, batch=8, dtype="float32"
    ),
    "gpt2-25M": Gpt(
        layers=6, width=512, heads=8, vocabulary=12288, sequence=64, batch=8, dtype="float32"
    ),
    "gpt2-2048": Gpt(
        layers=2, width=256, heads=4, vocabulary=2048, sequence=2048, batch=2, dtype="float32"
    ),
    "llama": TRAINED["llama"],
    "vit": TRAINED["vit"],
    "bert": Bert(layers=4, width=256, heads=4, vocabulary=4096, sequence=128, batch=8),
}
"""Models that are trained, compared with PyTorch."""

_RANK_TOKENS = 1024


def models_of_tokens(tokens: int, ranks: int) -> Mapping[str, Model]:
    """Return two language models of two layers that are trained on sequences of ``tokens``.

    Each rank has 1,024 tokens, and at least one sequence.
    """
    batch = ranks * max(_RANK_TOKENS // tokens, 1)
    models: Mapping[str, Any] = {
        "GPT": SPEED_TRAINED["gpt2-2048"],
        "LLaMA": replace(TRAINED["llama"], layers=2, vocabulary=2048),
    }
    return {name: replace(one, sequence=tokens, batch=batch) for name, one in models.items()}


def _at_most(model: Any) -> Model:
    """Return a transformer with the sequence length, and the largest batch, that are timed."""
    resized: Model = replace(model, sequence=128, batch=8)
    return resized


SPEED_RUN: Mapping[str, Model] = {
    "resnet50": RUN["resnet50"],
    "gpt2": _at_most(RUN["gpt"]),
    "llama": _at_most(RUN["llama"]),
    "bert": Bert(layers=6, width=512, heads=8, vocabulary=8192, sequence=128, batch=8),
}
"""Models that are run, compared with plain ONNX Runtime, at any batch."""

SPEED_SPLIT: Mapping[str, Model] = {
    "alexnet": AlexNet(batch=32, image=64, classes=100),
    "vgg16": Vgg(batch=16, image=32, shrink=2, classes=100),
    "lstm": Lstm(width=512, vocabulary=4096, sequence=16, batch=32, rows_first=True),
    "transformer": Translation(layers=2, width=256, heads=4, vocabulary=4096, sequence=64, batch=8),
    "gpt2-5M": SPEED_TRAINED["gpt2-5M"],
}
"""Models for the comparison of found plans with manual plans."""

BATCH_NORMALISED = (Residual, ResNet)
"""Models with losses that depend on which samples are normalised together."""
