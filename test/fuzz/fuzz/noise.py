"""What rounding alone does to the outputs of a model."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz.builder import session_of
from fuzz.graphs import Case
from fuzz.inside import values_of

__all__ = ["spread"]

_EPSILON = {"float16": 1e-3, "float32": 1.2e-7, "float64": 2.3e-16}
_RUNS = 4
_ROUNDINGS = 4.0


def spread(case: Case) -> list[float]:
    """Return, per output, by how much it moves when every inexact value inside moves by a few
    roundings; infinite where a NaN or an infinity comes or goes."""
    wanted = case.wanted()
    found = [0.0] * len(wanted)
    for run in range(_RUNS):
        model = _shaken(case, np.random.default_rng(run))
        outputs = session_of(model.SerializeToString()).run(None, case.feeds)
        for place, (one, other) in enumerate(zip(outputs, wanted, strict=True)):
            found[place] = max(found[place], _distance(one, other))
    return found


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    if other.dtype.kind != "f" or one.shape != other.shape:
        return 0.0
    a, b = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not ((a == b) | (np.isnan(a) & np.isnan(b)) | finite).all():
        return np.inf
    return float(np.abs(a - b)[finite].max(initial=0))


def _shaken(case: Case, rng: np.random.Generator) -> onnx.ModelProto:
    """Return the model with noise, relative to the largest element, on what nodes make."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    every = list(model.graph.node)
    del model.graph.node[:]
    values = values_of(case, [n for node in every for n in node.output if n in case.inexact])
    for node in every:
        shaken = [name for name in node.output if name in values]
        node.output[:] = [f"{n}_still" if n in values else n for n in node.output]
        model.graph.node.append(node)
        for name in shaken:
            _shake(model.graph, name, values[name], rng)
    return model


def _shake(graph: onnx.GraphProto, name: str, value: np.ndarray, rng: np.random.Generator) -> None:
    """Add the node that makes ``name`` from what was its own node's result."""
    scale = np.abs(value[np.isfinite(value)].astype(np.float64)).max(initial=0)
    size = _ROUNDINGS * _EPSILON[str(value.dtype)] * scale
    noise = np.asarray(rng.uniform(-size, size, value.shape)).astype(value.dtype)
    graph.initializer.append(numpy_helper.from_array(noise, f"{name}_noise"))
    operands = [f"{name}_still", f"{name}_noise"]
    graph.node.append(helper.make_node("Add", operands, [name], f"noise_{name}"))
