"""Graphs that were exported in training mode, run afterwards."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from handmade import model_of, value_info
from onnx import helper

from tensoropt.runtime.training.inference import for_inference

X = np.arange(24, dtype=np.float32).reshape(4, 6)


def training_mode(*outputs: str) -> onnx.ModelProto:
    """A normalization and a dropout, both in training mode."""
    numbers = {"scale": 2, "bias": 1, "mean": 3, "var": 4}
    stored = {name: np.full(6, number, np.float32) for name, number in numbers.items()}
    stored |= {"ratio": np.array(0.5, np.float32), "on": np.array(True)}
    given = ["x", "scale", "bias", "mean", "var"]
    nodes = [
        helper.make_node("BatchNormalization", given, ["n", "m", "v"], training_mode=1),
        helper.make_node("Dropout", ["n", "ratio", "on"], ["y"]),
    ]
    shapes = {"y": X.shape, "m": (6,)}
    ends = [value_info(name, "float32", shapes[name]) for name in outputs]
    return model_of(nodes, [value_info("x", "float32", X.shape)], ends, stored)


def test_running_statistics_are_read_and_nothing_is_dropped() -> None:
    model = training_mode("y")
    for_inference(model)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    assert "on" not in {tensor.name for tensor in model.graph.initializer}
    expected = (X - 3) / np.sqrt(4 + 1e-5) * 2 + 1
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, rtol=1e-5, atol=1e-6)


def test_a_node_whose_statistics_are_read_stays() -> None:
    model = training_mode("y", "m")
    before = model.graph.node[0].SerializeToString()
    for_inference(model)
    assert model.graph.node[0].SerializeToString() == before


@pytest.mark.parametrize("domain", ["com.microsoft", "own"])
def test_operators_of_other_domains_stay(domain: str) -> None:
    model = training_mode("y")
    model.graph.node[1].domain = domain
    for_inference(model)
    assert len(model.graph.node[1].input) == 3
