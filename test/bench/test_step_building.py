"""Building the training step of a deep model takes seconds, and grows with its layers."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from graphs.catalog import MODELS
from search_graphs import training_spec

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.training.step import build_training_step
from tensoropt.dialects.onnx import function


def _build(folder: Path, layers: int, recompute: str) -> tuple[float, int]:
    """Return the processor seconds, and the number of ops of the step."""
    model: Any = replace(MODELS["gpt3_175b"], layers=layers)  # type: ignore[type-var]
    module = driver.load(model.build(f"gpt_{layers}").save(folder), {}, training=True)
    driver.run_phase(module, "prepare", training=True)
    started = time.process_time()
    build_training_step(module, training_spec(recompute=recompute))
    return time.process_time() - started, len(function(module).regions[0].blocks[0].operations)


@pytest.mark.parametrize("recompute", ["none", "blocks"])
def test_a_hundred_layers_take_seconds(recompute: str, tmp_path: Path) -> None:
    _build(tmp_path, 1, recompute)  # imports the gradients
    _, few = _build(tmp_path, 24, recompute)
    seconds, many = _build(tmp_path, 96, recompute)
    assert seconds < 10
    assert 3 * few < many < 4 * few
