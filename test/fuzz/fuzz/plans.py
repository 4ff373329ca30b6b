"""A case under random plans: through the whole compiler, all ranks run, beside one device."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from fuzz.builder import session_of
from fuzz.graphs import Case
from fuzz.joined import join, prefix
from fuzz.noise import spread
from tensoropt.compiler.comparison.registry import solver
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.exporter.plan_weights import PlanWeights
from tensoropt.compiler.exporter.rank import export_rank
from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.program.graph import Op
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.frontier.search import FrontierPoint, SearchOptions, search_graphs
from tensoropt.compiler.training.alternatives import INFERENCE
from tensoropt.dialects import onnx as views
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys
from tensoropt.passes.search_strategies import annotate
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.layout.mesh_layout import MeshLayout

__all__ = [
    "DEVICES",
    "MESHES",
    "Choice",
    "Finding",
    "choices",
    "compare_values",
    "try_case",
    "try_plans",
]

MESHES = ((2,), (4,), (2, 2), (3,), (8,), (2, 3), (4, 2), (5,), (6,))
_CHANCES = (0.28, 0.18, 0.2, 0.14, 0.06, 0.05, 0.04, 0.02, 0.03)
DEVICES = ("cpu", str(Path(__file__).parents[2] / "devices" / "eager.toml"))
"""On the second collectives run beside operators."""
_RELATIVE = {"float16": 2e-2, "float32": 2e-4, "float64": 1e-9}
_DOUBTFUL = 0.1  # of a difference: what rounding may do to a case that is judged by it


@dataclass(frozen=True)
class Choice:
    """A random plan: its mesh, the seed of its strategies, the ops taken whole, and the device."""

    mesh: tuple[int, ...]
    seed: int
    whole: frozenset[int] = frozenset()
    device: str = DEVICES[0]


@dataclass(frozen=True)
class Finding:
    """What is wrong: where in the compiler (``phase``), with which plan if any, and what."""

    phase: str
    text: str
    choice: Choice | None = None
    plan: Sequence[str] = field(default=(), compare=False)


@cache
def _context() -> ir.Context:
    return driver.new_context()


def choices(seed: int, count: int) -> list[Choice]:
    """Return ``count`` random plans for the case of a seed, by turns for both devices."""
    rng = np.random.default_rng([seed, 1])
    picked = rng.choice(len(MESHES), count, replace=False, p=_CHANCES)
    return [
        Choice(MESHES[int(i)], int(rng.integers(1000)), device=DEVICES[(seed + number) % 2])
        for number, i in enumerate(picked)
    ]


def try_case(case: Case, count: int) -> Finding | None:
    """Try a case under ``count`` random plans; return what is wrong first."""
    return try_plans(case, choices(case.seed, count))


def try_plans(case: Case, plans: Sequence[Choice]) -> Finding | None:
    """Try a case under ``plans``; return what is wrong first."""
    with tempfile.TemporaryDirectory(prefix="tensoropt-fuzz-") as name:
        return next(_findings(case, plans, Path(name)), None)


def _findings(case: Case, plans: Sequence[Choice], folder: Path) -> Iterator[Finding]:
    path = folder / "model.onnx"
    path.write_bytes(case.model.SerializeToString())
    wanted = case.wanted()
    try:
        trial = _Trial(case, path, wanted)
    except Exception as error:
        yield Finding("import", _text(error))
        return
    for choice in plans:
        found = trial.try_plan(choice)
        if found is not None:
            yield found


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


class _Trial:
    """A case, imported and prepared once."""

    def __init__(self, case: Case, path: Path, wanted: Sequence[Any]) -> None:
        self.case, self.path, self.wanted = case, path, wanted
        self.source = ParameterSource(path)
        with _context():
            from tensoropt.compiler.importer.importer import import_model

            module = import_model(path, dims=case.dims if case.given else {})
        driver.advance(module, "rules")
        self.text = str(module.operation.get_asm(enable_debug_info=True))

    def try_plan(self, choice: Choice) -> Finding | None:
        """Return what is wrong with one plan."""
        phase, told = "search", list[str]()
        try:
            with _context():
                module = driver.parse_text(self.text)
            point = _point(module, choice)
            told, phase = _told(point), "compile"
            ranks, inputs, outputs = self._compiled(module, point, choice.device)
            phase = "run"
            found = _run(join(ranks), self.case.feeds, inputs, Mesh(choice.mesh))
        except Exception as error:
            return Finding(phase, _text(error), choice, told)
        wrong = self._compare(found, outputs, Mesh(choice.mesh))
        return Finding("values", wrong, choice, told) if wrong is not None else None

    def _compiled(
        self, module: ir.Module, point: FrontierPoint, device: str
    ) -> tuple[list[onnx.ModelProto], dict[str, Layout], list[Layout]]:
        annotate(module, point, device)
        driver.run_phase(module, "reshard")
        inputs = dict(_ends(module, "arg_attrs"))
        outputs = [layout for _, layout in _ends(module, "res_attrs")]
        driver.run_phase(module, "partition")
        with tempfile.TemporaryDirectory(dir=self.path.parent) as name:
            with PlanWeights(Path(name), Mesh(point.mesh), self.source) as weights:
                paths = [export_rank(module, rank, weights) for rank in range(weights.mesh.size)]
            ranks = [onnx.load(path) for path in paths]
        return ranks, inputs, outputs

    def _compare(
        self, ranks: Sequence[Sequence[Any]], layouts: Sequence[Layout], mesh: Mesh
    ) -> str | None:
        for rank, found in enumerate(ranks):
            for place, (got, layout, whole) in enumerate(
                zip(found, layouts, self.wanted, strict=True)
            ):
                want = MeshLayout(mesh, layout).for_shape(whole.shape).part_of(whole, rank)
                if got.shape == layout.local_shape(whole.shape, mesh):  # what is behind is padding
                    got = got[tuple(slice(size) for size in want.shape)]
                text = compare_values(got, want, whole)
                if text is not None and not self._is_rounding(got, want, place):
                    return f"rank {rank}, output {self.case.model.graph.output[place].name}: {text}"
        return None

    def _is_rounding(self, got: Any, want: Any, place: int) -> bool:
        """Say whether a difference is one that rounding alone makes of this model."""
        if got.shape != want.shape or got.dtype != want.dtype or want.dtype.kind != "f":
            return False
        noise = spread(self.case)[place]
        if np.isnan(got).sum() != np.isnan(want).sum():
            return noise == np.inf
        with np.errstate(invalid="ignore"):
            error = np.nanmax(np.abs(got.astype(np.float64) - want), initial=0)
        return bool(noise > _DOUBTFUL * error)


def compare_values(got: Any, want: Any, whole: Any) -> str | None:
    """Return how ``got`` differs from ``want``, a part of ``whole``; ``None`` if it agrees.

    Floats may differ by a part of the largest of ``whole``; NaN and infinities are where they are
    in ``want``; all else is equal.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype} {got.shape}, expected {want.dtype} {want.shape}"
    if want.dtype.kind != "f":
        wrong = got != want
    else:
        one, other, every = (x.astype(np.float64) for x in (got, want, whole))
        scale = np.abs(every[np.isfinite(every)]).max(initial=0)
        wrong = ~np.isclose(one, other, 0.0, _RELATIVE[str(want.dtype)] * scale, equal_nan=True)
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} differ, at {at}: {got[at]}, expected {want[at]}"


def _point(module: ir.Module, choice: Choice) -> FrontierPoint:
    """Return the random plan of a choice, or that with ample memory; ``choice.whole`` run the whole
    op on every rank."""
    graph, mesh = read_graph(module), Mesh(choice.mesh)
    options = SearchOptions(solver("random", choice.seed))
    device = load_device(choice.device)
    points = search_graphs({INFERENCE: graph}, [mesh], device, options).points
    point = points[choice.seed % len(points)]
    strategies = dict(point.strategies)
    ops = [node for node in strategies if isinstance(graph.nodes[node], Op)]
    for place in choice.whole:
        if place < len(ops):
            strategies[ops[place]] = point.tables.options[ops[place]][0]
    return replace(point, strategies=strategies)


def _told(point: FrontierPoint) -> list[str]:
    """Return the operators and layouts of what is split."""
    rows = []
    graph = point.tables.graph
    for index, strategy in point.strategies.items():
        sides = (strategy.operands, strategy.results)
        text = " -> ".join(" ".join(",".join(x.texts) for x in side) for side in sides)
        node = graph.nodes[index]
        if set(text) & set("SP"):
            kind = node.info.name if isinstance(node, Op) else type(node).__name__
            rows.append(f"{kind} {node.name}: {text}")
    return rows


def _ends(module: ir.Module, side: str) -> list[tuple[str, Layout]]:
    main = views.function(module)
    if side not in main.attributes:
        return []
    held = main.attributes[side]
    return [(keys.NAME.of(own), keys.LAYOUT.of(own)) for own in held]


def _run(
    model: onnx.ModelProto, feeds: Mapping[str, Any], layouts: Mapping[str, Layout], mesh: Mesh
) -> list[list[Any]]:
    """Return the outputs of every rank."""
    session = session_of(model.SerializeToString())
    wanted = {value.name for value in model.graph.input}
    parts = {}
    for rank in range(mesh.size):
        for name, array in feeds.items():
            own = prefix(rank) + name
            if own in wanted:
                part = MeshLayout(mesh, layouts[name]).for_shape(array.shape).part_of(array, rank)
                parts[own] = np.ascontiguousarray(part).reshape(part.shape)
    found = session.run(None, parts)
    each = len(found) // mesh.size
    return [found[rank * each : (rank + 1) * each] for rank in range(mesh.size)]
