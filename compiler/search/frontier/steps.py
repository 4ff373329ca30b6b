"""The steps of training that one search looks at: one per way to build it, and their union."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tensoropt.compiler.search.frontier.search import (
    FrontierPoint,
    FrontierResult,
    LeftOut,
    undominated,
    worst_bound,
)
from tensoropt.compiler.search.problem.graph import Graph
from tensoropt.compiler.search.problem.reader import read_graph
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.alternatives import Alternative, alternatives
from tensoropt.compiler.training.cut import argument_names, updated_names
from tensoropt.dialects.mlir import ir

__all__ = [
    "Graphs",
    "Search",
    "StepPoint",
    "as_step",
    "check_state",
    "read_graphs",
    "search_steps",
]

Say = Callable[[str], None]

Graphs = Mapping[Alternative, Graph]
"""The graphs to search by the ways to build a step; the one for inference by ``INFERENCE``."""

Search = Callable[[Graph, float | None, Say], FrontierResult]
"""Searches one graph in so many seconds."""


@dataclass(frozen=True)
class StepPoint(FrontierPoint):
    """A point of a training step, and the way in which that is built."""

    recompute: str = "none"
    micro_batches: int = 1


def read_graphs(module: ir.Module) -> Graphs:
    """Return what there is to search in ``module``: one graph, or one per way to build a step."""
    return {way: read_graph(module, main) for way, main in alternatives(module).items()}


def check_state(step: Graph, planned: Mapping[str, Any]) -> None:
    """Raise UserError unless ``step`` keeps what the entry ``training`` of a plan lists."""
    kept, wanted = updated_names(step.module), [row["name"] for row in planned["state"]]
    sums = [row["accumulator"] for row in planned["gradients"] if row["accumulator"] is not None]
    given = set(argument_names(step.module))
    if kept != wanted or not given.issuperset(sums):
        odd = sorted({*kept} ^ {*wanted} or {*sums} - given)
        raise UserError(
            f"--strategies: the plan is of another step, expected its --optimizer "
            f"{planned['optimizer']['name']}, --micro-batches {planned['micro_batches']} and "
            f"--freeze, got: {'no ' if odd[0] in wanted + sums else ''}{odd[0]}"
        )


def search_steps(
    graphs: Graphs,
    search: Search,
    say: Say,
    meshes: Sequence[tuple[int, ...]],
    time_limit_s: float | None = None,
    enough_bytes: int | None = None,
) -> FrontierResult:
    """Return the union of the frontiers of ``graphs`` on ``meshes``, searched in turn.

    The time left is shared evenly among the steps to come. A step that cannot be searched is left
    out, those after Ctrl-C as well; raises UserError when that is so for all of them. Ends early
    with a point of at most ``enough_bytes``.
    """
    union = _Union(search, _shares(time_limit_s, len(graphs)))
    for way, graph in graphs.items():
        tell = say if len(graphs) == 1 else _prefixed(say, way)
        union.add(way, graph, tell)
        if union.holds(enough_bytes):
            break
    return union.result(meshes)


class _Union:
    """Frontiers of steps, and why there is none of a step."""

    def __init__(self, search: Search, shares: Iterator[float | None]) -> None:
        self.search, self.shares = search, shares
        self.found: dict[Alternative, FrontierResult] = {}
        self.refusals: dict[Alternative, UserError | str] = {}
        self.interrupted = False

    def add(self, way: Alternative, graph: Graph, say: Say) -> None:
        """Search a step; Ctrl-C raises unless something was found before."""
        share = next(self.shares)
        if self.interrupted:
            self.refusals[way] = "interrupted"
            return
        try:
            self.found[way] = self.search(graph, share, say)
            self.interrupted = self.found[way].interrupted
        except UserError as error:
            self.refusals[way] = error
        except KeyboardInterrupt:
            if not self.found:
                raise
            self.refusals[way], self.interrupted = "interrupted", True

    def holds(self, enough_bytes: int | None) -> bool:
        """Say whether a point needs no more than ``enough_bytes``, if there is such a limit."""
        points = (point for result in self.found.values() for point in result.points)
        return enough_bytes is not None and any(p.memory_bytes <= enough_bytes for p in points)

    def result(self, meshes: Sequence[tuple[int, ...]]) -> FrontierResult:
        """Return the union; raises the first refusal if nothing was found."""
        if not self.found:
            raise next(error for error in self.refusals.values() if isinstance(error, UserError))
        refused = [
            (way, LeftOut(mesh, str(reason)))
            for way, reason in self.refusals.items()
            for mesh in meshes
        ]
        return _united(self.found, refused, interrupted=self.interrupted)


def _shares(limit_s: float | None, count: int) -> Iterator[float | None]:
    """Yield the seconds for each of ``count`` searches, when it begins."""
    started = time.monotonic()
    for number in range(count):
        if limit_s is None:
            yield None
        else:
            yield max(0.0, limit_s - (time.monotonic() - started)) / (count - number)


def _prefixed(say: Say, way: Alternative) -> Say:
    return lambda text: say(f"recompute {way}, {text}")


def _united(
    found: Mapping[Alternative, FrontierResult],
    refused: Sequence[tuple[Alternative, LeftOut]] = (),
    *,
    interrupted: bool = False,
) -> FrontierResult:
    results = list(found.values())
    points = [
        StepPoint(**{**vars(point), **asdict(way)})
        for way, result in found.items()
        for point in result.points
    ]
    return FrontierResult(
        undominated(points),
        worst_bound([result.epsilon for result in results]),
        worst_bound([result.time_epsilon for result in results]),
        sum(result.found for result in results),
        _left_out(found, refused),
        interrupted,
        next((result.stopped for result in results if result.stopped), None),
    )


def _left_out(
    found: Mapping[Alternative, FrontierResult], refused: Sequence[tuple[Alternative, LeftOut]]
) -> list[LeftOut]:
    """Return each mesh once per reason, with the steps that it was left out for unless for all."""
    steps: dict[LeftOut, list[str]] = {}
    for way, result in found.items():
        for left in result.left_out:
            steps.setdefault(left, []).append(str(way))
    for way, left in refused:
        steps.setdefault(left, []).append(str(way))
    every = len({*found, *(way for way, _ in refused)})
    return [
        left
        if len(names) == every
        else LeftOut(left.mesh, f"{left.reason} (recompute {', '.join(names)})")
        for left, names in steps.items()
    ]


def as_step(result: FrontierResult, way: Alternative) -> FrontierResult:
    """Return the points of one step as such."""
    return _united({way: result})
