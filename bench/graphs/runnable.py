"""Models at sizes that run on a laptop, large enough that their tensors matter."""

from __future__ import annotations

from collections.abc import Mapping

from graphs.alexnet import AlexNet
from graphs.bert import Bert
from graphs.catalog import Model
from graphs.gpt import Gpt
from graphs.inception import Inception
from graphs.llama import Llama
from graphs.lstm import Lstm
from graphs.residual import Residual
from graphs.resnet import ResNet
from graphs.translation import Translation
from graphs.vit import Vit

__all__ = ["RUN", "TRAINED"]

RUN: Mapping[str, Model] = {
    "alexnet": AlexNet(batch=16),
    "inception": Inception(batch=8),
    "resnet50": ResNet(batch=8, layers=50),
    "lstm": Lstm(width=512, batch=16),
    "bert": Bert(layers=6, width=512, heads=8, sequence=256, batch=4),
    "gpt": Gpt(
        layers=6, width=768, heads=12, vocabulary=8192, sequence=256, batch=4, dtype="float32"
    ),
    "llama": Llama(
        layers=6,
        width=768,
        heads=12,
        groups=4,
        inner=2048,
        vocabulary=8192,
        sequence=256,
        batch=4,
        dtype="float32",
    ),
    "mixture": Llama(
        layers=2,
        width=512,
        heads=8,
        groups=4,
        inner=1024,
        vocabulary=4096,
        experts=4,
        sequence=64,
        batch=4,
        dtype="float32",
    ),
    "translation": Translation(
        layers=3, width=512, heads=8, vocabulary=8192, sequence=128, batch=8
    ),
    "vit": Vit(batch=4, layers=6, width=768, heads=12),
}
"""Models that are run."""

TRAINED: Mapping[str, Model] = {
    "cnn": Residual(batch=32, image=64, blocks=2, width=32, pooled=True),
    "gpt2": Gpt(
        layers=4, width=256, heads=4, vocabulary=4096, sequence=128, batch=8, dtype="float32"
    ),
    "llama": Llama(
        layers=4,
        width=256,
        heads=4,
        groups=2,
        inner=512,
        vocabulary=4096,
        sequence=128,
        batch=8,
        dtype="float32",
    ),
    "vit": Vit(batch=8, image=64, classes=16, layers=4, width=384, heads=6, patch=8),
    "lstm": Lstm(width=256, vocabulary=4096, sequence=16, batch=32, rows_first=True),
}
"""Models that are trained, with the loss of ``graphs/trained.py``."""
