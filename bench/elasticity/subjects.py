"""Training subjects: a model with random samples, and a family of its plans."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from graphs.catalog import Model
from graphs.gpt import Gpt
from graphs.residual import Residual
from graphs.trained import LOSS
from training_data import draw

from tensoropt.runtime.family.family import Family

__all__ = ["CURVES", "LARGE", "SWITCHED", "Recipe", "Subject", "prepare"]

_DROPOUT = 0.1


@dataclass(frozen=True)
class Recipe:
    """A model and its training on ``samples`` samples."""

    model: Model
    optimizer: str
    samples: int
    learning_rate: float


SWITCHED: Mapping[str, Recipe] = {
    "cnn": Recipe(Residual(batch=32), "adamw", 256, 1e-4),
    "gpt2": Recipe(
        Gpt(layers=4, width=256, heads=8, vocabulary=2048, sequence=64, batch=8, dtype="float32"),
        "adamw",
        256,
        1e-4,
    ),
}
LARGE: Mapping[str, Recipe] = {
    "gpt2-1GB": Recipe(
        Gpt(layers=7, width=1024, heads=16, vocabulary=512, sequence=4, batch=4, dtype="float32"),
        "adamw",
        64,
        1e-5,
    ),
}
CURVES: Mapping[str, Recipe] = {
    "cnn": Recipe(
        Residual(batch=8, image=16, blocks=1, width=8, pooled=True, dropout=_DROPOUT),
        "momentum",
        360,
        0.02,
    ),
    "gpt2": Recipe(
        Gpt(
            layers=2,
            width=32,
            heads=4,
            vocabulary=64,
            sequence=8,
            batch=8,
            dtype="float32",
            dropout=_DROPOUT,
        ),
        "adamw",
        360,
        1e-3,
    ),
}


@dataclass(frozen=True)
class Subject:
    """A model that is ready to be trained; ``data`` is an .npz file."""

    name: str
    recipe: Recipe
    family: Family
    data: Path


def prepare(name: str, recipe: Recipe, folder: Path, devices: int) -> Subject:
    """Write the model, samples, and the fastest and leanest plans up to ``devices`` devices."""
    path = recipe.model.build("model").save(folder, seed=0)
    data, family = folder / "data.npz", folder / "family"
    np.savez(data, **draw(path, recipe.samples))
    tool = Path(sys.executable).with_name("tensoropt-opt")
    training = ["--train", "--loss", LOSS, "--optimizer", recipe.optimizer]
    # A leanest plan is wanted even if its process takes hardly less memory.
    planning = ["--objective", "profile", "--resolution", "0", "--with-leanest"]
    command = [tool, path, *training, *planning, "--devices", str(devices), "-o", family]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return Subject(name, recipe, Family.read(family), data)
