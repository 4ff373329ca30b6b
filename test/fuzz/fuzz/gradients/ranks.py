"""The training step of a graph under a random plan, on simulated ranks, beside one device."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from training.simulated import points, relative_error
from training.steps import build, spec_of

from fuzz.gradients.graph import Graph, model_of
from fuzz.gradients.trial import FAILED, PASSED, Outcome
from fuzz.plans import DEVICES
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["can_run", "try_ranks"]

_MESHES = ((2,), (2,), (3,), (4,), (2, 2))
_BOUND = {"float32": 2e-3, "float64": 1e-7}


def try_ranks(graph: Graph, seed: int) -> Outcome:
    """Compare all that the step gives: the loss and the new weights."""
    mesh = Mesh(_MESHES[int(np.random.default_rng(seed).integers(len(_MESHES)))])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        path.write_bytes(model_of(graph).SerializeToString())

        def make() -> ir.Module:
            return build(path, spec_of(graph.loss))

        try:
            (point,) = points(make(), mesh, seed=seed)
            device = DEVICES[seed % 2]
            error = relative_error(make, point, given=graph.leaves, device=device)
        except Exception as error:  # a crash is what this looks for
            return Outcome(FAILED, f"on {mesh}: {type(error).__name__}: {error}")
    if not error <= _BOUND[graph.dtype]:
        return Outcome(FAILED, f"on {mesh}: what a step gives is wrong by {error:.3g} of it")
    return Outcome(PASSED)


def can_run(graph: Graph) -> bool:
    """Say whether ranks can be simulated: not where there are subgraphs."""
    return not any(node.refused for node in graph.nodes)
