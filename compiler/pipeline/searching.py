"""What is searched for a prepared model: a frontier, the fewest devices, a profile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tensoropt.compiler.pipeline.request import Request, device_counts, nothing_fits
from tensoropt.compiler.search.frontier.points import Point, fastest, leanest
from tensoropt.dialects.mlir import ir

if TYPE_CHECKING:
    from tensoropt.compiler.search.frontier.compare import Compared
    from tensoropt.compiler.search.frontier.search import FrontierResult, SearchOptions
    from tensoropt.compiler.search.problem.graph import Graph

__all__ = ["compare", "fewest_devices", "frontier", "profile"]

Say = Callable[[str], None]


def _silent(text: str) -> None:
    """Report nothing."""


def frontier(module: ir.Module, request: Request, say: Say = _silent) -> FrontierResult:
    """Return the frontier of a prepared ``module``: its points sorted by time.

    For training it is that of its steps.
    """
    if request.pins is not None:
        return _pinned(module, request, request.pins)
    return _frontier(_graphs(module, request, say), request, say, on_interrupt="return")


def _pinned(module: ir.Module, request: Request, pins: Mapping[str, Any]) -> FrontierResult:
    from tensoropt.compiler.search.frontier.pinned import pinned_frontier

    if not request.training:
        return pinned_frontier(module, pins, request.device)
    from tensoropt.compiler.pipeline.training_steps import as_step, build_step, check_state

    step = build_step(module, request.training[0])
    check_state(step, pins["training"])
    found = pinned_frontier(step, pins, request.device)
    return as_step(found, request.training[0].recompute)


Graphs = Mapping[str, "Graph"]
"""The graphs to search by what they compute anew; the one for inference by an empty text."""


def _graphs(module: ir.Module, request: Request, say: Say) -> Graphs:
    from tensoropt.compiler.search.problem.reader import read_graph

    if not request.training:
        return {"": read_graph(module)}
    from tensoropt.compiler.pipeline.training_steps import step_graphs

    return step_graphs(module, request.training, say)


def _frontier(graphs: Graphs, request: Request, say: Say, **more: Any) -> FrontierResult:
    from tensoropt.compiler.search.frontier.search import search_graph

    options = _options(request, request.search, **more)
    if not request.training:
        return search_graph(graphs[""], request.meshes, request.device, options, say)
    from tensoropt.compiler.pipeline.training_steps import search_steps

    def search(graph: Graph, limit_s: float | None, tell: Say) -> FrontierResult:
        own = replace(options, time_limit_s=limit_s)
        return search_graph(graph, request.meshes, request.device, own, tell)

    meshes = [mesh.shape for mesh in request.meshes]
    limits = (options.time_limit_s, options.enough_bytes)
    return search_steps(graphs, search, say, meshes, *limits)


def _options(request: Request, search: str, **more: Any) -> SearchOptions:
    from tensoropt.compiler.search.frontier.search import SearchOptions
    from tensoropt.compiler.search.methods.registry import takers

    bounded = search in takers("epsilon")
    return SearchOptions(
        search,
        request.seed or 0,
        request.epsilon,
        request.time_limit_s if bounded or not request.anytime else None,
        memory_bytes=request.memory_bytes,
        must_answer=request.anytime,
        **more,
    )


def compare(
    module: ir.Module, request: Request, searches: Sequence[str], say: Say = _silent
) -> list[Compared]:
    """Return what each of ``searches`` finds for a prepared ``module``, on the same tables."""
    from tensoropt.compiler.search.frontier.compare import compare_methods

    if request.training:
        from tensoropt.compiler.pipeline.training_steps import build_step

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
    from tensoropt.compiler.search.problem.bounds import least_bytes

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
