"""A family for 1, 2 and 3 devices, each of which splits what it has among all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from made_families import FLAGS, write
from onnx import helper, numpy_helper

__all__ = ["WIDTHS", "sixths"]

BATCH, WIDTHS = 48, (48, 96, 24)
SPLIT = ("--pin", "w1=S(1)@x", "--pin", "w2=S(0)@x")  # whatever is fastest


def sixths(folder: Path) -> Path:
    """Write a model and its family into ``folder``; returns the family's."""
    flags = ("--loss", "mse:y,t", "--optimizer", "adam", *FLAGS, "--devices", "3")
    write(_model(folder), *flags, *SPLIT, "-o", folder / "family")
    return folder / "family"


def _model(folder: Path) -> Path:
    """Two matrix products whose sizes 2 and 3 divide."""
    draw = np.random.default_rng(0)
    first, middle, last = WIDTHS
    weights = {"w1": (first, middle), "w2": (middle, last)}
    held = [
        numpy_helper.from_array(draw.normal(0, 0.1, shape).astype(np.float32), name)
        for name, shape in weights.items()
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Tanh", ["h"], ["r"], name="tanh"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="second"),
    ]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [BATCH, size])
        for name, size in (("x", first), ("y", last))
    ]
    graph = helper.make_graph(nodes, "main", ends[:1], ends[1:], held)
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    return path
