"""Real models, compiled for several plans and run on ranks: a sample of `make sweep`."""

from __future__ import annotations

from pathlib import Path

import pytest
import zoo
from graphs.small import SMALL
from sweep import Row, sweep_model

EPSILON = 0.1
"""`make sweep` takes exact frontiers."""


def _check(row: Row) -> None:
    assert not row.failures
    assert row.plans == row.passed == row.returned > 0
    assert not row.blind
    assert row.memory_error < 0.05


_SLOW = {"llama_tiny": [pytest.mark.slow]}  # llama_tiny_dynamic is the same with open sizes


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=_SLOW.get(name, [])) for name in zoo.TRANSFORMERS]
)
def test_transformers_agree_with_one_device(name: str) -> None:
    devices = 2 if name == "bert_tiny" else 4
    _check(sweep_model(zoo.transformer_path(name), devices, plans=1, epsilon=EPSILON))


def test_a_cnn_with_random_weights_agrees_with_one_device(tmp_path: Path) -> None:
    _check(sweep_model(zoo.provide("squeezenet", tmp_path), 4, plans=2, epsilon=EPSILON))


_QUICK = {"decoder_runtime", "lstm_small", "quantized_odd"}  # a cache, a loop, uneven sizes


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.quick if name in _QUICK else ()) for name in SMALL],
)
def test_small_models_agree_with_one_device(name: str, tmp_path: Path) -> None:
    _check(sweep_model(zoo.provide(name, tmp_path), 2, plans=2, epsilon=EPSILON))


def test_resnet50_as_it_comes_agrees_with_one_device() -> None:
    """Its weights are constants, parts of which are equal to others: ONNX Runtime keeps such once.

    All of a weight is one number, so that the outputs are constant, which the check says. The
    frontier counts them one by one, so that its memory is more than that of the graphs.
    """
    row = sweep_model(zoo.cnn_path("resnet50"), 2, plans=0, epsilon=EPSILON)
    assert not row.failures
    assert row.plans == row.passed == row.returned > 0
