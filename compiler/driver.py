"""From a model file to a frontier and a plan directory: the phases in order."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensoropt.compiler.errors import UserError
from tensoropt.compiler.report.points import Point, fastest, leanest
from tensoropt.compiler.request import Chosen, Request, device_counts, nothing_fits
from tensoropt.dialects.mlir import context, ir
from tensoropt.dialects.onnx import function
from tensoropt.passes.base import PassError
from tensoropt.passes.diagnostics import describe
from tensoropt.passes.pipeline import Pipeline, parse_pipeline, raised_by_mlir

if TYPE_CHECKING:
    from tensoropt.compiler.report.comparison import Compared
    from tensoropt.compiler.search.frontier import FrontierPoint, FrontierResult, SearchOptions
    from tensoropt.compiler.search.graph import Graph
    from tensoropt.compiler.training.spec import TrainingSpec

__all__ = [
    "PHASES",
    "apply_point",
    "build_step",
    "chosen_step",
    "compare",
    "compile_plan",
    "fewest_devices",
    "frontier",
    "load",
    "new_context",
    "parse_text",
    "phase_of",
    "profile",
    "read_text",
    "run_phase",
]

PHASES: Mapping[str, str] = {
    "prepare": "verify-onnx,infer-shapes,fold-constants,simplify,dce",
    "reshard": "insert-reshards,optimize-reshards",
    "partition": "partition,dce",
}
"""The passes of each phase, as pipeline text; `search` lies between `prepare` and `reshard`."""

PREPARE_TRAINING = PHASES["prepare"].replace("simplify", "simplify{keep-dropout=true}")
"""The passes of `prepare` where `train` follows it, which builds the training step."""

Say = Callable[[str], None]


def _silent(text: str) -> None:
    """Report nothing."""


def new_context() -> ir.Context:
    """Return a context for one compilation; single-threaded, so that its order never varies."""
    ctx = context()
    ctx.enable_multithreading(False)
    return ctx


def parse_text(text: str) -> ir.Module:
    """Return the module that MLIR ``text`` holds, in the current context."""
    try:
        return ir.Module.parse(text)
    except ir.MLIRError as error:
        raise raised_by_mlir(error) from None


def load(path: Path, dims: Mapping[str, int], *, training: bool = False) -> ir.Module:
    """Return the module of an ``.onnx`` model, or of MLIR text of any phase, in a new context.

    Text comes from an ``.mlir`` file, or from stdin for ``-``. With ``training``, a model is
    converted to the operators that have gradients, and its shapes must be static.
    """
    with new_context():
        if path.suffix == ".mlir" or str(path) == "-":
            return _parsed(path)
        from tensoropt.compiler.frontend.importer import import_model

        return import_model(path, dims=dims, training=training)


def _parsed(path: Path) -> ir.Module:
    text = read_text(path)
    try:
        return parse_text(text)
    except PassError as error:
        # MLIR calls any text "-".
        name = "<stdin>" if str(path) == "-" else str(path)
        where = describe(error.location)
        where = f"{name}{where[1:]}" if where.startswith("-:") else where or name
        raise UserError(f"{where}: {error.message}") from None


def read_text(path: Path) -> str:
    """Return what an MLIR file, or stdin for ``-``, holds."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        name = "<stdin>" if str(path) == "-" else path
        raise UserError(f"{name}: expected MLIR text in UTF-8, got: other bytes") from None


def phase_of(module: ir.Module) -> str:
    """Return the phase that ``module`` has passed: ``import`` for all before `train` and search."""
    main = function(module)
    ops = [op.operation for op in main.regions[0].blocks[0]]
    if any(op.name == "topt.reshard" for op in ops):
        return "reshard"
    if any("topt.strategy" in op.attributes for op in ops):
        return "search"
    sides = [key for key in ("arg_attrs", "res_attrs") if key in main.attributes]
    held = [own for key in sides for own in main.attributes[key]]
    if any("topt.layout" in own for own in held):
        return "partition"
    return "train" if any("topt.state" in own for own in held) else "import"


def run_phase(module: ir.Module, phase: str, *, training: bool = False, **options: Any) -> None:
    """Run the passes of one phase over ``module``; ``options`` are those of :class:`Pipeline`."""
    text = PREPARE_TRAINING if training and phase == "prepare" else PHASES[phase]
    Pipeline(parse_pipeline(text, module.context), **options).run(module)


def build_step(module: ir.Module, spec: TrainingSpec, **options: Any) -> ir.Module:
    """Return the training step of a prepared ``module``; ``options`` as in :func:`run_phase`."""
    from tensoropt.compiler import steps

    return steps.build_step(module, spec, **options)


def chosen_step(module: ir.Module, point: FrontierPoint, request: Request) -> ir.Module:
    """Return the training step that ``point`` is of; ``module`` itself where none is built."""
    from tensoropt.compiler import steps

    return steps.step_of(module, request.training, point)


def frontier(module: ir.Module, request: Request, say: Say = _silent) -> FrontierResult:
    """Return the frontier of a prepared ``module``: its points sorted by time.

    For training it is that of its steps.
    """
    if request.pins is not None:
        return _pinned(module, request, request.pins)
    return _frontier(_graphs(module, request, say), request, say, on_interrupt="return")


def _pinned(module: ir.Module, request: Request, pins: Mapping[str, Any]) -> FrontierResult:
    from tensoropt.compiler.search.pinned import pinned_frontier

    if not request.training:
        return pinned_frontier(module, pins, request.device)
    from tensoropt.compiler.steps import as_step

    step = build_step(module, request.training[0])
    found = pinned_frontier(step, pins, request.device)
    return as_step(found, request.training[0].recompute)


Graphs = Mapping[str, "Graph"]
"""The graphs to search by what they compute anew; the one for inference by an empty text."""


def _graphs(module: ir.Module, request: Request, say: Say) -> Graphs:
    from tensoropt.compiler.search.graph import read_graph

    if not request.training:
        return {"": read_graph(module)}
    from tensoropt.compiler.steps import step_graphs

    return step_graphs(module, request.training, say)


def _frontier(graphs: Graphs, request: Request, say: Say, **more: Any) -> FrontierResult:
    from tensoropt.compiler.search.frontier import search_graph

    options = _options(request, request.search, **more)
    if not request.training:
        return search_graph(graphs[""], request.meshes, request.device, options, say)
    from tensoropt.compiler.steps import search_steps

    def search(graph: Graph, limit_s: float | None, tell: Say) -> FrontierResult:
        own = replace(options, time_limit_s=limit_s)
        return search_graph(graph, request.meshes, request.device, own, tell)

    return search_steps(graphs, search, say, options.time_limit_s, options.enough_bytes)


def _options(request: Request, search: str, **more: Any) -> SearchOptions:
    from tensoropt.compiler.search.frontier import SearchOptions

    return SearchOptions(
        search,
        request.seed or 0,
        request.slack,
        request.time_limit_s,
        memory_bytes=request.memory_bytes,
        **more,
    )


def compare(
    module: ir.Module, request: Request, searches: Sequence[str], say: Say = _silent
) -> list[Compared]:
    """Return what each of ``searches`` finds for a prepared ``module``, on the same tables."""
    from tensoropt.compiler.search.compare import compare_methods

    if request.training:
        module = build_step(module, request.training[0])
    options = [_options(request, search) for search in searches]
    return compare_methods(module, request.meshes, request.device, options, say)


def fewest_devices(module: ir.Module, request: Request, say: Say) -> tuple[Request, FrontierResult]:
    """Return the least number of devices on which something fits ``request.memory_bytes``.

    Tries 1, 2, 4, ... up to ``request.devices``, but none on which the sizes of the tensors alone
    are too much; raises :class:`UserError` when none is enough.
    """
    graphs, limit, exactly = _graphs(module, request, say), request.memory_bytes or 0, False
    for count in device_counts(request.devices):
        need, own, exactly = _least_bytes(graphs, count), request.on(count), False
        if need > limit:
            continue
        lean = leanest(_frontier(graphs, own.extremes, say, enough_bytes=limit).points)
        if lean.memory_bytes <= limit:
            return own, _frontier(graphs, own, say, on_interrupt="return")
        need, exactly = lean.memory_bytes, True
    raise nothing_fits(limit, need, count, exactly=exactly)


def _least_bytes(graphs: Graphs, count: int) -> int:
    from tensoropt.compiler.search.bounds import least_bytes

    return min(least_bytes(graph, count) for graph in graphs.values())


def profile(module: ir.Module, request: Request, say: Say) -> Iterator[tuple[int, Point | None]]:
    """Yield the fastest point that fits for 1, 2, 4, ... devices; ``None`` where nothing fits.

    The graph and its rules are read once; options and tables depend on the mesh.
    """
    graphs, limit = _graphs(module, request, say), request.memory_bytes
    for count in device_counts(request.devices):
        own = request.on(count)
        if limit is not None and _least_bytes(graphs, count) > limit:
            yield count, None
            continue
        points = _frontier(graphs, own if limit else own.extremes, say).points
        fits = [point for point in points if limit is None or point.memory_bytes <= limit]
        yield count, fastest(fits) if fits else None


def apply_point(module: ir.Module, point: FrontierPoint, request: Request) -> None:
    """Write the strategies of ``point`` into ``module``, with its mesh and layouts."""
    from tensoropt.passes.search_strategies import annotate

    annotate(module, point, request.device_spec)


def compile_plan(module: ir.Module, chosen: Chosen, directory: Path, say: Say) -> None:
    """Write ``directory``: one graph per rank, the weights, and plan.json.

    ``module`` is prepared, and is spent afterwards. The folder appears only when it is complete;
    an existing plan is replaced, anything else is refused.
    """
    from tensoropt.compiler.cost.memory import program_memory
    from tensoropt.compiler.plan.describe import describe_module
    from tensoropt.compiler.plan.document import plan_document
    from tensoropt.compiler.plan.writer import plan_folder, write_plan

    with plan_folder(directory) as folder:
        apply_point(module, chosen.point, chosen.request)
        described = describe_module(module)
        for phase in ("reshard", "partition"):
            say(f"phase {phase}")
            run_phase(module, phase)
        _export_ranks(module, chosen, folder, say)
        write_plan(folder, plan_document(chosen, described, program_memory(module)))


def _export_ranks(module: ir.Module, chosen: Chosen, folder: Path, say: Say) -> None:
    from tensoropt.compiler.frontend.exporter import export_rank
    from tensoropt.compiler.frontend.weights import ParameterSource

    source, mesh = ParameterSource(chosen.source), chosen.point.mesh
    for rank in range(math.prod(mesh)):
        say(f"writing rank {rank}")
        export_rank(module, rank, mesh, folder, source)
