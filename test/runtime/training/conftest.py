"""A small classifier, its data, and runs of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade_classifier import Classifier

from tensoropt.runtime.launch.start import start
from tensoropt.runtime.training.job import TrainJob, TrainResult


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Classifier:
    return Classifier(tmp_path_factory.mktemp("classifier"))


@pytest.fixture(scope="session")
def data(classifier: Classifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 samples: a batch of 4 wraps around at the end of the first epoch."""
    path = tmp_path_factory.mktemp("data") / "data.npz"
    np.savez(path, **classifier.data(30))
    return path


@pytest.fixture(scope="session")
def plans(classifier: Classifier, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Plans that tests only read, by kind and ranks."""
    folder = tmp_path_factory.mktemp("plans")
    kinds = (("data", 1), ("data", 2), ("zero", 2))
    return {f"{k}{n}": classifier.plan(folder / f"{k}{n}", n, k) for k, n in kinds}


@pytest.fixture
def train(data: Path, tmp_path: Path) -> Callable[..., tuple[TrainResult, list[Any]]]:
    """Train on ranks of their own; returns the result and the entries of the log."""

    def run(plan: Path, steps: int, **options: Any) -> tuple[TrainResult, list[Any]]:
        log = tmp_path / "log.jsonl"
        given = {"data": str(data), "learning_rate": 0.01, "log": str(log), **options}
        result = start(TrainJob(str(plan), steps=steps, **given))
        return result, [json.loads(line) for line in log.read_text().splitlines()]

    return run
