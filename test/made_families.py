"""Small models, and their families as the command writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from graphs.trained import LOSS, TRAINED
from onnx import NodeProto, TensorProto, helper, numpy_helper
from training_data import draw

from tensoropt.compiler.cli.opt import main

__all__ = ["FLAGS", "chain", "convolutions", "perceptron", "small_family", "write"]

FLAGS = ("--objective", "profile", "--epsilon", "0.2", "--recompute", "none")

Shapes = Mapping[str, Sequence[int]]


def write(model: Path, *flags: str | Path) -> None:
    """Run tensoropt-opt over a model that trains."""
    assert main([str(model), "--train", *map(str, flags)]) == 0


def perceptron(folder: Path) -> Path:
    """Two matrix products of 512 samples; the leanest plan for two devices is not the fastest."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Tanh", ["h"], ["r"], name="tanh"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="second"),
    ]
    weights = {"w1": (64, 128), "w2": (128, 32)}
    return _saved(folder / "perceptron.onnx", nodes, {"x": (512, 64)}, {"y": (512, 32)}, weights)


def chain(folder: Path) -> Path:
    """Eight matrix products of 8 samples: enough to cut."""
    nodes, last = [], "x"
    for index in range(8):
        result = "y" if index == 7 else f"h{index}"
        nodes.append(helper.make_node("MatMul", [last, f"w{index}"], [result], name=f"p{index}"))
        if index < 7:
            last = f"r{index}"
            nodes.append(helper.make_node("Tanh", [result], [last], name=f"t{index}"))
    weights = {f"w{index}": (16, 16) for index in range(8)}
    return _saved(folder / "chain.onnx", nodes, {"x": (8, 16)}, {"y": (8, 16)}, weights)


def convolutions(folder: Path) -> Path:
    """A convolution whose results BatchNormalization normalises, and a product: 8 images."""
    norm = ["h", "scale", "shift", "mean", "variance"]
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["h"], name="conv", pads=[1] * 4),
        helper.make_node("BatchNormalization", norm, ["n"], name="norm"),
        helper.make_node("Relu", ["n"], ["r"], name="relu"),
        helper.make_node("Flatten", ["r"], ["f"], name="flatten"),
        helper.make_node("MatMul", ["f", "w"], ["scores"], name="last"),
    ]
    channels = {name: (8,) for name in norm[1:]}
    weights = {"kernel": (8, 3, 3, 3), **channels, "w": (512, 10)}
    ends = {"x": (8, 3, 8, 8)}, {"scores": (8, 10)}
    return _saved(folder / "convolutions.onnx", nodes, *ends, weights)


def _saved(
    path: Path, nodes: Sequence[NodeProto], inputs: Shapes, outputs: Shapes, weights: Shapes
) -> Path:
    rng = np.random.default_rng(0)
    stored: list[Any] = [
        numpy_helper.from_array(rng.uniform(0.0, 0.25, shape).astype(np.float32), name)
        for name, shape in weights.items()
    ]
    ends = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in side.items()]
        for side in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, path.stem, *ends, stored)
    opset = helper.make_opsetid("", 20)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), path)
    return path


def small_family(folder: Path, name: str, *flags: str) -> tuple[Path, Path]:
    """Return the data and the family of `convolutions`, or of a model of `TRAINED`."""
    made = convolutions(folder) if name == "cnn" else TRAINED[name].build(name).save(folder, seed=0)
    data, family = folder / f"{name}.npz", folder / f"{name}-family"
    np.savez(data, **draw(made, 32))
    write(made, "--loss", LOSS, *FLAGS, *flags, "-o", family)
    return data, family
