"""Benchmark models, scaled down to run quickly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from graphs.catalog import MODELS

__all__ = ["TINY", "write_tiny"]

_CNN = {"batch": 2, "shrink": 16, "classes": 8}
_TEXT = {"batch": 2, "sequence": 8, "width": 32, "heads": 4, "vocabulary": 64, "layers": 2}
_LLAMA = {**_TEXT, "groups": 2, "inner": 48}

TINY: dict[str, dict[str, Any]] = {
    "alexnet": {**_CNN, "image": 64},
    "vgg16": {**_CNN, "image": 32},
    "inception_v3": {**_CNN, "image": 79},
    "resnet152": {**_CNN, "image": 32, "layers": 14},
    "wrn50_2": {**_CNN, "image": 32, "layers": 14},
    "lstm": {"batch": 2, "sequence": 4, "width": 16, "vocabulary": 32},
    "lstm_unrolled": {"batch": 2, "sequence": 4, "width": 16, "vocabulary": 32},
    "transformer_base": {**_TEXT, "layers": 1},
    "transformer_big": {**_TEXT, "layers": 1},
    "bert_large": _TEXT,
    "gpt3_13b": _TEXT,
    "gpt3_175b": _TEXT,
    "llama3_8b": _LLAMA,
    "llama3_70b": _LLAMA,
    "mixtral_8x7b": {**_LLAMA, "experts": 4},
}


def write_tiny(name: str, folder: Path) -> Path:
    """Write the scaled-down model with random weights, in float32; return its file."""
    model: Any = replace(MODELS[name], **TINY[name], dtype="float32")  # type: ignore[type-var]
    path: Path = model.build(name).save(folder, seed=0)
    return path
