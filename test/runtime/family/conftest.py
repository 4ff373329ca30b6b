"""Families of small models, written by the command; tests that spoil one get a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from made_families import FLAGS, perceptron, write


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return perceptron(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def written(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plans 1, 2 and 2-lean of a perceptron; tests only read it."""
    folder = tmp_path_factory.mktemp("written") / "family"
    flags = ("--loss", "mse:y,t", *FLAGS, "--devices", "2", "--with-leanest", "--resolution", "0")
    write(model, *flags, "-o", folder)
    return folder


@pytest.fixture
def family(written: Path, tmp_path: Path) -> Path:
    """A copy."""
    return Path(shutil.copytree(written, tmp_path / "family"))


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for small models, by the names of `TRAINED`, each with its data and family."""
    return tmp_path_factory.mktemp("small")
