"""Training steps on included GPUs: what is hidden, and where nothing is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from training.steps import model_of

import tensoropt as to

WIDTH, ROWS, LAYERS = 1024, 8192, 3


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model of equal products, whose loss is a mean."""
    weights = {f"w{n}": np.zeros((WIDTH, WIDTH), np.float32) for n in range(LAYERS)}
    nodes = [("MatMul", [f"h{n - 1}" if n else "x", f"w{n}"], f"h{n}", {}) for n in range(LAYERS)]
    nodes.append(("ReduceMean", [f"h{LAYERS - 1}"], "l", {"keepdims": 0}))
    inputs = {"x": np.zeros((ROWS, WIDTH), np.float32)}
    path = tmp_path_factory.mktemp("hidden") / "model.onnx"
    path.write_bytes(model_of(nodes, inputs, ["l"], weights).SerializeToString())
    return path


def hidden_part(path: Path, device: str, micro_batches: int = 1, **asked: object) -> float:
    """Return the hidden part of the communication of the fastest plan that splits the batch."""
    train = to.Training("output:l", "sgd", micro_batches=micro_batches, recompute="none")
    asked = {"train": train, "pins": ["x=S(0)"], "epsilon": 1.0, **asked}
    point = to.load(path).frontier(8, device=device, **asked).fastest  # type: ignore[arg-type]
    assert 0 <= point.hidden_s < point.communication_s
    return point.hidden_s / point.communication_s


@pytest.mark.parametrize("device", ["a100", "h100", "b200"])
def test_gradients_are_sent_during_the_backward_pass(path: Path, device: str) -> None:
    assert 0.05 < hidden_part(path, device) < 0.6  # operators lose 0.4 of it or more


@pytest.mark.parametrize(
    ("device", "asked"),
    [
        ("v100", {}),
        ("h100", {"overlap": "off"}),
        ("h100", {"micro_batches": 2, "stages": 2}),
    ],
)
def test_nothing_is_hidden_without_a_gain(
    path: Path, device: str, asked: dict[str, object]
) -> None:
    assert hidden_part(path, device, **asked) == 0
