"""The training step of a graph on ONNX Runtime, its gradients beside those of PyTorch."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from training.steps import Step, spec_of
from training.vjp import session_of

from fuzz.gradients.graph import (
    Array,
    Graph,
    gradients,
    model_of,
    replay,
    tensor_of,
    trainable,
)
from tensoropt.compiler.support.errors import UserError

__all__ = [
    "FAILED",
    "PASSED",
    "REFUSED",
    "UNFIT",
    "WEAK",
    "Outcome",
    "try_graph",
    "unfit",
]

PASSED, REFUSED, WEAK, UNFIT, FAILED = "passed", "refused", "weak", "unfit", "failed"

_RELATIVE = {"float32": 3e-4, "float64": 1e-5}
_ABSOLUTE = {"float32": 3e-6, "float64": 1e-8}
_NOISE, _WEAK = 50, 0.05


@dataclass(frozen=True)
class Outcome:
    """What became of a graph: one of the five words, and why."""

    kind: str
    why: str = ""


def try_graph(graph: Graph) -> Outcome:
    """Compare the gradients of all weights.

    "refused": an error names a node that has none; "weak": rounding alone moves a gradient by more
    than a twentieth; "unfit": ONNX Runtime does not run the model itself, or otherwise than PyTorch
    does, so that there is nothing to compare with.
    """
    model = model_of(graph)
    if (why := unfit(graph)) is not None:
        return Outcome(UNFIT, why)
    loss, wanted = gradients(graph, torch.float64)
    try:
        with tempfile.TemporaryDirectory() as folder:
            got_loss, got = _step(graph, model, Path(folder))
    except UserError as error:
        return _refusal(graph, wanted, str(error))
    except Exception as error:  # a crash is what this looks for
        return Outcome(FAILED, f"{type(error).__name__}: {error}")
    return _compared(graph, {"the loss": np.array(loss), **wanted}, {"the loss": got_loss, **got})


def unfit(graph: Graph) -> str | None:
    """Say why the model cannot be compared, if it cannot: its inner values are."""
    probe = model_of(graph)
    names = [name for node in graph.nodes for name in node.results if name]
    del probe.graph.output[:]
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    try:
        session = session_of(probe.SerializeToString())
        feeds = {i.name: graph.inputs[i.name] for i in session.get_inputs()}
        found = dict(zip(names, session.run(names, feeds), strict=True))
    except Exception as error:  # its own types of error have no common base
        return str(error)
    return _disagreement(graph, found)


def _disagreement(graph: Graph, found: Mapping[str, Array]) -> str | None:
    values = {name: tensor_of(array, torch.float64) for name, array in graph.leaves.items()}
    replay(graph.nodes, values)
    for node in graph.nodes:
        for name in filter(None, node.results):
            got, want = found[name], values[name].numpy()
            if got.shape != want.shape or not np.allclose(got, want, rtol=1e-2, atol=1e-3):
                return f"{node.op_type} gives {got.shape}, PyTorch {want.shape}, or other numbers"
    return None


def _step(graph: Graph, model: onnx.ModelProto, folder: Path) -> tuple[Array, dict[str, Array]]:
    """Return the loss and the gradient of every weight that is trained; zeros where it has none."""
    step = Step(model, spec_of(graph.loss), folder)
    results = step.whole(graph.inputs, learning_rate=1.0)
    found = {}
    for name in trainable(graph):
        old = graph.weights[name].astype(np.float64)
        new = results[step.updates[name]] if name in step.updates else old
        found[name] = old - new
    return results["loss"], found


def _refusal(graph: Graph, wanted: Mapping[str, Array], text: str) -> Outcome:
    """Return whether an error is one that there has to be."""
    if any(node.refused and f"node '{node.name}'" in text for node in graph.nodes):
        return Outcome(REFUSED, text)
    zero = not any(wanted[name].any() for name in trainable(graph))
    if zero and text.startswith("the loss depends on no parameter"):
        return Outcome(PASSED)
    return Outcome(FAILED, text)


def _compared(graph: Graph, wanted: Mapping[str, Array], got: Mapping[str, Array]) -> Outcome:
    noise: dict[str, Array] = {}
    if graph.dtype == "float32":
        loss, noise = gradients(graph, torch.float32)
        noise["the loss"] = np.array(loss)
    largest = max((np.abs(wanted[n]).max(initial=0) for n in got if n != "the loss"), default=0.0)
    weak = False
    for name, value in got.items():
        whole = wanted[name]
        size = np.abs(whole).max(initial=0)
        doubt = np.abs(noise.get(name, whole) - whole).max(initial=0)
        weak |= bool(doubt > _WEAK * size)
        bound = _RELATIVE[graph.dtype] * size + _ABSOLUTE[graph.dtype] * (1 + largest)
        error = np.abs(value - whole).max(initial=0)
        if not error <= bound + _NOISE * doubt:
            what = "the loss" if name == "the loss" else f"the gradient of {name}"
            return Outcome(FAILED, f"{what} is wrong by {error:.3g}, of at most {size:.3g}")
    return Outcome(WEAK if weak else PASSED)
