"""Gradients of convolutions, pooling, norms and dropout split where the forward op does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.simulated import points, relative_error
from training.steps import Node, build, model_of, spec_of
from training.test_splits import gathered

from tensoropt.compiler.program.graph import Op
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.problem.clusters import clusters_of
from tensoropt.compiler.sharding.rule.strategies import axis_roles
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.mesh import Mesh

BATCH, CHANNELS, SIZE, CLASSES = 8, 8, 8, 4


def random(*shape: int) -> Any:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32) / 8


def ones(count: int = CHANNELS) -> Any:
    return np.ones(count, np.float32)


def convolved(y: str, **attributes: Any) -> list[Node]:
    pads = {"pads": [1] * 4, "kernel_shape": [3, 3], **attributes}
    return [("Conv", ["x", "w", "b"], "c", pads), ("Relu", ["c"], y, {})]


def normalised(op_type: str, *statistics: str, **attributes: Any) -> list[Node]:
    return [*convolved("r"), (op_type, ["r", "s", "t", *statistics], "h", attributes)]


def pooled(op_type: str, size: int, **attributes: Any) -> list[Node]:
    held = {} if not size else {"kernel_shape": [size] * 2, **attributes}
    return [*convolved("r"), (op_type, ["r"], "h", held)]


WEIGHTS = {"w": random(CHANNELS, CHANNELS, 3, 3), "b": random(CHANNELS)}
SCALED = {**WEIGHTS, "s": ones(), "t": random(CHANNELS)}

# What is between the images and the mean over their pixels, and its weights.
MODELS: Mapping[str, tuple[list[Node], Mapping[str, Any]]] = {
    "convolution": (convolved("h"), WEIGHTS),
    "strided convolution": (convolved("h", strides=[2, 2]), WEIGHTS),
    "columns of taps": (
        convolved("h", kernel_shape=[3, 1], pads=[1, 0, 1, 0], strides=[2, 1]),
        {**WEIGHTS, "w": random(CHANNELS, CHANNELS, 3, 1)},
    ),
    "pointwise": (
        [("Conv", ["x", "w"], "h", {})],
        {"w": random(CHANNELS, CHANNELS, 1, 1)},
    ),
    "groups": (
        convolved("h", group=2, strides=[2, 2]),
        {**WEIGHTS, "w": random(CHANNELS, CHANNELS // 2, 3, 3)},
    ),
    "wide groups": (
        [
            ("Conv", ["x", "twice"], "d", {}),
            ("Conv", ["d", "w", "b"], "c", {"group": 2, "strides": [2, 1], "pads": [1] * 4}),
            ("Relu", ["c"], "h", {}),
        ],
        {**WEIGHTS, "twice": random(2 * CHANNELS, CHANNELS, 1, 1)},
    ),
    "joined": (
        [
            *convolved("r"),
            ("Conv", ["x", "point"], "p", {}),
            ("Concat", ["r", "p"], "m", {"axis": 1}),
            ("Conv", ["m", "both"], "h", {}),
        ],
        {
            **WEIGHTS,
            "point": random(CHANNELS, CHANNELS, 1, 1),
            "both": random(CHANNELS, 2 * CHANNELS, 1, 1),
        },
    ),
    "depthwise": (
        convolved("h", group=CHANNELS),
        {**WEIGHTS, "w": random(CHANNELS, 1, 3, 3)},
    ),
    "transpose": (
        [("ConvTranspose", ["x", "w", "b"], "h", {"strides": [2, 2]})],
        WEIGHTS,
    ),
    "batch": (
        normalised("BatchNormalization", "mean", "variance"),
        {**SCALED, "mean": random(CHANNELS), "variance": ones()},
    ),
    "instance": (normalised("InstanceNormalization"), SCALED),
    "maximum": (pooled("MaxPool", 3, strides=[2, 2]), WEIGHTS),
    "overlapping maxima": (pooled("MaxPool", 3, strides=[2, 2], pads=[1] * 4), WEIGHTS),
    "average": (pooled("AveragePool", 3, strides=[2, 2], pads=[1] * 4), WEIGHTS),
    "tiles": (pooled("AveragePool", 2, strides=[2, 2]), WEIGHTS),
    "whole": (pooled("GlobalMaxPool", 0), WEIGHTS),
    "dropout": ([*convolved("r"), ("Dropout", ["r", "ratio"], "h", {})], WEIGHTS),
    "layer": (
        [*convolved("r"), ("LayerNormalization", ["r", "s", "t"], "h", {})],
        {**WEIGHTS, "s": ones(SIZE), "t": random(SIZE)},
    ),
}


def step(folder: Path, name: str) -> ir.Module:
    """Return the training step of a classifier of images."""
    nodes, weights = MODELS[name]
    ends: list[Node] = [
        ("GlobalAveragePool", ["h"], "g", {}),
        ("Flatten", ["g"], "f", {}),
        ("MatMul", ["f", "head"], "y", {}),
    ]
    held = {**weights, "head": random(CHANNELS, CLASSES), "ratio": np.array(0.25, np.float32)}
    images = {"x": np.zeros((BATCH, CHANNELS, SIZE, SIZE), np.float32)}
    path = folder / "model.onnx"
    first: list[Node] = [("Conv", ["x", "stem"], "i", {}), *_from(nodes, "i")]
    held["stem"] = random(CHANNELS, CHANNELS, 1, 1)
    path.write_bytes(model_of([*first, *ends], images, ["y"], held).SerializeToString())
    return build(path, spec_of("softmax-cross-entropy:y,labels"))


def _from(nodes: list[Node], name: str) -> list[Node]:
    """Return ``nodes`` reading ``name`` for the input, so that it has a gradient too."""
    return [(op, [name if x == "x" else x for x in given], y, own) for op, given, y, own in nodes]


@pytest.mark.parametrize("name", MODELS)
def test_random_plans_compute_the_same_step(tmp_path: Path, name: str) -> None:
    (point,) = points(step(tmp_path, name), Mesh((2, 2)), seed=1)
    assert relative_error(lambda: step(tmp_path, name), point) < 1e-4


# Where a split of the groups asks for both operands whole, for the gradient of few channels'
# weights, where pixels are counted in one, and where the inputs within groups, which the gradient
# is of, would be strided parts of it, as would be the outputs.
GATHERED = {
    ("groups", "c", 1),
    ("groups", "c", 2),
    ("groups", "c", 3),
    ("wide groups", "c", 2),
    ("wide groups", "c", 3),
    ("depthwise", "c", 1),
    ("overlapping maxima", "h", 3),
    ("instance", "h", 3),
    ("whole", "h", 2),
    ("whole", "h", 3),
}


@pytest.mark.parametrize("name", MODELS)
def test_followers_gather_nothing(tmp_path: Path, name: str) -> None:
    graph = read_graph(step(tmp_path, name))
    tried = 0
    for cluster in clusters_of(graph):
        leader = graph.nodes[cluster.leader]
        if not isinstance(leader, Op) or len(cluster.members) == 1:
            continue
        for choice in axis_roles(leader.rule):
            if not isinstance(choice, int) or (name, leader.name, choice) in GATHERED:
                continue
            found = gathered(graph, cluster.leader, cluster.members[1:], choice)
            assert found == [], (leader.name, choice)
            tried += 1
    assert tried > 10
