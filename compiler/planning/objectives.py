"""Objectives of a search: a frontier, the fewest devices, a profile, a comparison."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tensoropt.compiler.comparison.compare import Compared, compare_methods, searched_by
from tensoropt.compiler.comparison.registry import solver, takers
from tensoropt.compiler.planning.answer_time import least_s, search_time_s
from tensoropt.compiler.planning.memory_limit import lacking, nothing_fits, points_within
from tensoropt.compiler.planning.pinned_search import (
    PinsCost,
    cost_between,
    pinned_graphs,
    search_pinned,
)
from tensoropt.compiler.planning.replicas import check_batches
from tensoropt.compiler.planning.request import THROUGHPUT, Request, device_counts
from tensoropt.compiler.planning.staged import staged_frontier
from tensoropt.compiler.program.graph import Graph
from tensoropt.compiler.search.frontier.pinned import pinned_frontier
from tensoropt.compiler.search.frontier.points import (
    fastest,
    least_process_bytes,
    replicas_of,
)
from tensoropt.compiler.search.frontier.search import (
    FrontierPoint,
    FrontierResult,
    SearchOptions,
    as_step,
    distinct_meshes,
    search_graphs,
)
from tensoropt.compiler.search.frontier.steps import Graphs, check_state
from tensoropt.compiler.search.problem.bounds import least_bytes
from tensoropt.compiler.search.problem.problem import DoesNotFitError
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.alternatives import INFERENCE, Alternative
from tensoropt.dialects.elements import items_text

__all__ = ["Row", "compare", "fewest_devices", "frontier", "pins_cost", "profile", "search"]

Say = Callable[[str], None]


def _silent(text: str) -> None:
    """Report nothing."""


def search(
    graphs: Graphs, request: Request, say: Say = _silent, begun_s: float | None = None
) -> tuple[Request, FrontierResult]:
    """Return the frontier for ``request``, and the request with the number of devices found.

    Ctrl-C ends the search and returns its points so far. ``begun_s`` is as in :func:`frontier`.
    """
    if request.objective == "devices":
        return fewest_devices(graphs, request, say)
    return request, frontier(graphs, request, say, begun_s)


def frontier(
    graphs: Graphs, request: Request, say: Say = _silent, begun_s: float | None = None
) -> FrontierResult:
    """Return the frontier of a program: its points sorted by time.

    For training, the program is a step. ``begun_s`` is the start of the command on
    ``time.monotonic()``, by default now. It sets the default time limit.
    """
    if request.objective == THROUGHPUT and INFERENCE not in graphs:
        objective, train = map(request.interface.name_of, ("objective", "train"))
        raise UserError(f"{objective} {THROUGHPUT} is of inference, expected no {train}")
    if request.stages == 1 and request.given_plan is not None:
        return _cost_plan(graphs, request, request.given_plan)
    if request.batches is not None:
        check_batches(next(iter(graphs.values())), request)
    are_several = request.batches is not None or any(way.micro_batches > 1 for way in graphs)
    if request.stages != 1 or (request.replicates and are_several):
        return _staged(graphs, request, say, begun_s)
    return _frontier(graphs, request, say, _interruptible(request, graphs, begun_s))


def _staged(graphs: Graphs, request: Request, say: Say, begun_s: float | None) -> FrontierResult:
    if INFERENCE in graphs and request.batches is None:
        _check_stream(graphs[INFERENCE], request)

    def searched(own: Graphs, asked: Request) -> FrontierResult:
        say(f"stages: {asked.stages}, micro-batches: {_micro_batches(own)}")
        options = _interruptible(asked, own)
        if request.anytime:  # on a busy machine a share of the default time is for the processor
            options = replace(options, processor_s=asked.search_time or 0.0)
        return _frontier(own, asked, say, options)

    total_s = _options(request, graphs, begun_s).time_limit_s
    return staged_frontier(graphs, request, searched, total_s)


def _check_stream(graph: Graph, request: Request) -> None:
    """Raise :class:`UserError` for a program of inference that cannot be cut into stages."""
    name = request.interface.name_of
    remedy = f"expected {name('stages')} 1"
    if request.schedule is not None:
        schedule, train = name("schedule"), name("train")
        raise UserError(f"{schedule} is of a training step, expected {train} as well")
    if graph.has_caches and request.objective == THROUGHPUT:
        objective = name("objective")
        raise UserError(
            f"{objective} {THROUGHPUT}: each step of a decoder in stages waits for the step "
            f"before, {remedy}, or {objective} time"
        )
    infos = [value.info for value in graph.values if value.info is not None]
    fixed = next((info.dtype for info in infos if not info.is_movable), None)
    if fixed is not None:
        raise UserError(f"{name('stages')}: stages take no {items_text(fixed)}, {remedy}")


def _micro_batches(graphs: Graphs) -> str:
    return ", ".join(map(str, sorted({way.micro_batches for way in graphs})))


def _cost_plan(graphs: Graphs, request: Request, plan: Mapping[str, Any]) -> FrontierResult:
    if INFERENCE in graphs:
        return pinned_frontier(graphs[INFERENCE], plan, request.description)
    way = _planned_way(graphs, plan.get("training"))
    check_state(graphs[way], plan["training"])
    return as_step(pinned_frontier(graphs[way], plan, request.description), way)


def _planned_way(graphs: Graphs, training: Mapping[str, Any] | None) -> Alternative:
    """Return the alternative of a plan.

    If none has the plan's number of micro-batches, return an alternative that recomputes the same
    values, with other state.
    """
    planned = "nothing, for inference" if training is None else training["recompute"]
    ways = [way for way in graphs if way.recompute == planned]
    if training is None or not ways:
        known = dict.fromkeys(way.recompute for way in graphs)
        raise UserError(
            f"--strategies: expected a plan of a step that recomputes {' or '.join(known)}, "
            f"got: {planned}"
        )
    exact = [way for way in ways if way.micro_batches == training["micro_batches"]]
    return (exact or ways)[0]


def pins_cost(
    graphs: Graphs, request: Request, found: FrontierResult, say: Say = _silent
) -> PinsCost | None:
    """Return the cost of the pins of ``request``, with which it has ``found`` its points.

    Searches again without pins, only for the ends of the frontier, within the time limit of the
    request; ``None`` if that is too short, and for points on replicas, which the search without
    pins does not price.
    """
    if any(map(replicas_of, found.points)):
        return None
    free = replace(request, search="ft", pins=(), forbid=(), annotations=None)
    limit = request.search_time
    if limit is None:
        limit = search_time_s(time.monotonic(), _nodes(graphs))
    brief = replace(
        _options(free, graphs),
        epsilon=1.0,
        time_limit_s=limit,
        must_answer=False,
        memory_bytes=None,
    )
    try:
        without = _frontier(graphs, free, lambda text: say(f"without pins, {text}"), brief)
    except UserError:
        return None
    return cost_between(found, without)


def _interruptible(request: Request, graphs: Graphs, begun_s: float | None = None) -> SearchOptions:
    """Return the options of a search that returns its points so far if it is interrupted."""
    return replace(_options(request, graphs, begun_s), on_interrupt="return")


def _frontier(graphs: Graphs, request: Request, say: Say, options: SearchOptions) -> FrontierResult:
    def searched(own: Graphs) -> FrontierResult:
        device, names_axes = request.description, any(graph.names_axes for graph in own.values())
        distinct = distinct_meshes(request.meshes, device, names_axes=names_axes)
        meshes = searched_by(request.search, request.seed or 0, distinct)
        return search_graphs(own, meshes, device, options, say)

    try:
        found = search_pinned(graphs, request, searched)
    except DoesNotFitError:
        if request.memory is not None:
            raise
        # Points above the capacity are shown.
        anything = solver(request.search, request.seed or 0)
        options = replace(options, solve=anything, memory_bytes=None)
        found = search_pinned(graphs, request, searched)
    return replace(found, time_limit_s=options.time_limit_s)


def _options(request: Request, graphs: Graphs, begun_s: float | None = None) -> SearchOptions:
    limit_s, processor_s = request.search_time, 0.0
    if request.anytime and request.search in takers("epsilon"):
        begun_s = time.monotonic() if begun_s is None else begun_s
        nodes = _nodes(graphs)
        limit_s, processor_s = search_time_s(begun_s, nodes), least_s(nodes)
    return SearchOptions(
        solver(request.search, request.seed or 0, request.search_limit_bytes),
        request.tolerance,
        limit_s,
        memory_bytes=request.search_limit_bytes,
        must_answer=True,
        search_memory_bytes=request.search_memory_bytes,
        resolution=request.resolution_used,
        most_points=request.most_points,
        processor_s=processor_s,
    )


def _nodes(graphs: Graphs) -> int:
    return sum(len(graph.nodes) for graph in graphs.values())


def compare(
    graphs: Graphs, request: Request, searches: Sequence[str], say: Say = _silent
) -> list[Compared]:
    """Return the results of ``searches`` on the first of ``graphs``, with the same tables."""
    graph = next(iter(pinned_graphs(graphs, request).values()))
    every = {name: _options(replace(request, search=name), graphs) for name in searches}
    seed = request.seed or 0
    return compare_methods(graph, request.meshes, request.description, every, seed, say)


def fewest_devices(
    graphs: Graphs, request: Request, say: Say = _silent
) -> tuple[Request, FrontierResult]:
    """Return the request with the fewest devices on which a plan fits, and its frontier.

    Tries 1, 2, 4, ... up to ``request.devices``, except numbers for which the tensors alone are too
    large. Raises :class:`UserError` if no plan fits ``request.limit_bytes``.
    """
    limit, bound = request.limit_bytes or 0, "at least "
    for count in device_counts(request.devices):
        own, bound = request.with_devices(count), "at least "
        need = own.rest_bytes + _least_bytes(graphs, count)
        if need > limit:
            continue
        brief = replace(_options(own, graphs), epsilon=1.0, enough_bytes=own.search_limit_bytes)
        lean = least_process_bytes(_frontier(graphs, own, say, brief).points)
        if lean <= limit:
            return own, _frontier(graphs, own, say, _interruptible(own, graphs))
        need, bound = lean, ""
    raise nothing_fits(own, limit, need, bound)


def _least_bytes(graphs: Graphs, count: int) -> int:
    return min(least_bytes(graph, count) for graph in graphs.values())


@dataclass(frozen=True)
class Row:
    """The result for one number of devices; ``points`` are its points that fit.

    ``request`` is for that number. Without a point, ``why_not`` is the reason.
    """

    request: Request
    result: FrontierResult | None
    points: Sequence[FrontierPoint]
    why_not: str = ""

    @property
    def devices(self) -> int:
        return self.request.devices

    @property
    def point(self) -> FrontierPoint | None:
        """The fastest point."""
        return fastest(self.points) if self.points else None


def profile(graphs: Graphs, request: Request, say: Say = _silent) -> Iterator[Row]:
    """Yield a row for 1, 2, 4, ... devices: with the fastest and the leanest point, at least."""
    for count in device_counts(request.devices):
        yield _row(graphs, request.with_devices(count), say)


def _row(graphs: Graphs, request: Request, say: Say) -> Row:
    if request.stages != 1:
        return _row_of(request, frontier(graphs, replace(request, memory=None), say))
    limit = request.limit_bytes
    least = 0 if limit is None else request.rest_bytes + _least_bytes(graphs, request.devices)
    if limit is not None and least > limit:
        return Row(request, None, (), lacking(limit, least, "at least "))
    options = _options(request, graphs)
    if request.memory is None:
        # The ends are exact: if both of them fit, or neither does, they are enough.
        ends = _frontier(graphs, request, say, replace(options, epsilon=1.0))
        fits = points_within(ends.points, limit)
        if not fits or fastest(ends.points) in fits:
            return _row_of(request, ends)
    try:
        result = _frontier(graphs, request, say, options)
    except DoesNotFitError as error:
        return Row(request, None, (), str(error))
    return _row_of(request, result)


def _row_of(request: Request, result: FrontierResult) -> Row:
    limit, need = request.limit_bytes, least_process_bytes(result.points)
    fits = points_within(result.points, limit)
    return Row(request, result, fits, "" if fits or limit is None else lacking(limit, need))
