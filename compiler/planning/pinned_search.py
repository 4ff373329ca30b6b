"""Search with pins: bound to every graph, explained if they leave no plan, and priced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.program.graph import Graph
from tensoropt.compiler.program.pins import PinsError, least_culprits
from tensoropt.compiler.search.engine.ft import solve_min_time
from tensoropt.compiler.search.frontier.binding import Activations, pinned
from tensoropt.compiler.search.frontier.points import fastest, leanest
from tensoropt.compiler.search.frontier.search import FrontierResult
from tensoropt.compiler.search.frontier.steps import Graphs
from tensoropt.compiler.search.problem.problem import NothingAllowedError
from tensoropt.compiler.search.problem.training_tables import mesh_tables
from tensoropt.compiler.support.errors import UserError

__all__ = ["PinsCost", "cost_between", "pinned_graphs", "search_pinned"]


@dataclass(frozen=True)
class PinsCost:
    """Relative increase of the least time and of the least memory by pins."""

    time: float
    memory: float


def pinned_graphs(graphs: Graphs, request: Request) -> Graphs:
    """Return ``graphs`` with the pins of ``request``; UserError for a pin without a match."""
    pins = request.read_pins
    if not pins:
        return graphs
    activations = _activations(request)
    return {way: pinned(graph, pins, activations) for way, graph in graphs.items()}


def _activations(request: Request) -> Activations:
    """Return the names of tensors between nodes, if the file that has them is known."""
    if request.model is None or all(pin.is_node for pin in request.read_pins):
        return {}
    from tensoropt.compiler.importer.value_names import activation_names

    return activation_names(Path(request.model))


def search_pinned(
    graphs: Graphs, request: Request, search: Callable[[Graphs], FrontierResult]
) -> FrontierResult:
    """Return the result of ``search`` in ``graphs`` with the pins of ``request``.

    If pins leave no plan, raises UserError that names the fewest pins that cause it.
    """
    own = pinned_graphs(graphs, request)
    try:
        return search(own)
    except NothingAllowedError:
        if not request.read_pins:
            raise
        raise UserError(_contradiction(next(iter(own.values())), request)) from None


def _contradiction(graph: Graph, request: Request) -> str:
    """Return the message that names the pins that leave no plan on the first mesh."""
    conditions = [one for own in graph.conditions.values() for one in own]
    sources = list(dict.fromkeys(one.source for one in conditions))
    return least_culprits(sources, lambda kept: not _is_feasible(graph, request, kept))


def _is_feasible(graph: Graph, request: Request, sources: Sequence[str]) -> bool:
    """Return whether a plan meets ``sources``, by one min-plus elimination."""
    conditions = {
        index: tuple(one for one in own if one.source in sources)
        for index, own in graph.conditions.items()
    }
    narrowed = replace(graph, conditions=conditions)
    try:
        solve_min_time(mesh_tables(narrowed, request.meshes[0], request.description).problem)
    except (NothingAllowedError, PinsError):
        return False
    return True


def cost_between(found: FrontierResult, free: FrontierResult) -> PinsCost:
    """Return the cost of ``found`` over the points that were found without pins."""
    time_s = fastest(found.points).time_s / (fastest(free.points).time_s or 1.0)
    memory = leanest(found.points).process_bytes / (leanest(free.points).process_bytes or 1)
    return PinsCost(max(0.0, time_s - 1), max(0.0, memory - 1))
