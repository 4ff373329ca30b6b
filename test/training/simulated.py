"""A training step under a plan, on simulated ranks, against the same step on one device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from on_tensors import ON_TENSORS
from sharding.spmd import run_spmd

from tensoropt.compiler.comparison.registry import solver
from tensoropt.compiler.pipeline.driver import run_phase
from tensoropt.compiler.search.frontier.search import FrontierPoint, SearchOptions, search_frontier
from tensoropt.compiler.sharding.proof.parts import combine, cut
from tensoropt.dialects import onnx
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import layout_of
from tensoropt.passes.search_strategies import annotate
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["error_of", "points", "relative_error"]

Array = npt.NDArray[Any]
Make = Callable[[], ir.Module]

_HYPER = {"learning_rate": 0.1, "step": 3, "seed": 5, "loss_scale": 8, "loss_weight": 0.5}


def points(
    module: ir.Module, mesh: Mesh, seed: int | None = None, **options: Any
) -> list[FrontierPoint]:
    """Return the frontier of a training step on one mesh, or with a ``seed`` a random point."""
    solve = None if seed is None else solver("random", seed)
    given = SearchOptions(solve, **options)
    return list(search_frontier(module, [mesh], ON_TENSORS, given).points)


def relative_error(
    make: Make,
    point: FrontierPoint,
    classes: int = 4,
    given: Mapping[str, Array] | None = None,
    device: str = "cpu",
    reference: Make | None = None,
) -> float:
    """Return the largest error of a result of the step under ``point``, relative to its largest.

    ``make`` returns the module of the step anew, which becomes a program for ``device``. What it is
    fed are the arrays ``given`` by name; all else is random, labels and ids below ``classes``.
    One device runs the step of ``reference``, by default the same.
    """
    whole, split = (reference or make)(), make()
    annotate(split, point, device)
    run_phase(split, "reshard")
    return error_of(whole, split, Mesh(point.mesh), classes, given)


def error_of(
    whole: ir.Module,
    split: ir.Module,
    mesh: Mesh,
    classes: int = 4,
    given: Mapping[str, Array] | None = None,
) -> float:
    """Return the largest error of a result of ``split``, a program with reshards, on ``mesh``.

    One device runs ``whole``. The module ``split`` becomes the program of all ranks.
    """
    inputs = list(_inputs(whole, classes, given or {}))
    expected = run_spmd(whole, [inputs], Mesh((1,)))[0]
    fed, returned = (_layouts(split, key) for key in ("arg_attrs", "res_attrs"))
    run_phase(split, "partition")
    rng = np.random.default_rng(1)
    parts = [cut(x, layout, mesh, rng) for x, layout in zip(inputs, fed, strict=True)]
    ranks = [[part[rank] for part in parts] for rank in range(mesh.size)]
    results = zip(*run_spmd(split, ranks, mesh), strict=True)
    whole_results = [
        combine(list(held), layout, mesh, want.shape)
        for held, layout, want in zip(results, returned, expected, strict=True)
    ]
    return max(_error(got, want) for got, want in zip(whole_results, expected, strict=True))


def _error(got: Array, want: Array) -> float:
    return float(np.abs(got - want).max(initial=0) / (np.abs(want).max(initial=0) + 1e-6))


def _layouts(module: ir.Module, key: str) -> list[Layout]:
    held = onnx.function(module).attributes[key]
    return [layout_of(own["topt.layout"]) for own in held]


def _dtype(kind: ir.Type) -> np.dtype[Any]:
    element = element_of(str(kind))
    assert element is not None
    return np.dtype(element.dtype)


def _inputs(module: ir.Module, classes: int, given: Mapping[str, Array]) -> Iterator[Array]:
    rng, function = np.random.default_rng(0), onnx.function(module)
    arguments = function.regions[0].blocks[0].arguments
    for value, own in zip(arguments, function.attributes["arg_attrs"], strict=True):
        kind = ir.RankedTensorType(value.type)
        dtype, shape = _dtype(kind.element_type), list(kind.shape)
        if "topt.hyper" in own:
            yield np.array(_HYPER[own["topt.hyper"].value], dtype)
        elif own["topt.name"].value in given:
            yield given[own["topt.name"].value]
        elif dtype == "int64":
            yield rng.integers(0, classes, shape)
        elif "topt.state" in own and own["topt.state"].value in ("variance", "buffer"):
            yield rng.uniform(0.5, 1.5, shape).astype(dtype)
        else:
            yield rng.standard_normal(shape).astype(dtype)
