"""Fastest plans of benchmark models on described GPUs, and the families of their steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.program.evaluate import evaluator_of
from tensoropt.compiler.program.graph import Graph, Op
from tensoropt.compiler.program.timeline import Step, timeline_of
from tensoropt.compiler.search.engine.ft import solve_min_time
from tensoropt.compiler.search.frontier.search import FrontierPoint, frontier_point
from tensoropt.compiler.search.problem.training_tables import mesh_tables
from tensoropt.passes import block_attention, fuse_attention
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["families", "fastest_plan", "separate_attention", "steps_of"]


@contextmanager
def separate_attention() -> Iterator[None]:
    """Return a context in which attention stays separate operators."""
    with (
        mock.patch.object(block_attention, "_attention_of", return_value=None),
        mock.patch.object(fuse_attention, "read_chain", return_value=None),
    ):
        yield


def fastest_plan(graph: Graph, ranks: int, device: Device) -> FrontierPoint:
    """Return the fastest plan of a graph on a mesh with one axis, with blocking collectives.

    Published steps are of systems that do not overlap them, or the overlap is a property of the
    system (decision 85).
    """
    tables = mesh_tables(graph, Mesh((ranks,)), device.without_overlap())
    return frontier_point(tables, tables.decode(solve_min_time(tables.problem).assignment))


def steps_of(point: FrontierPoint) -> Iterator[tuple[Op, Step]]:
    """Yield the steps of a plan, each with the op that runs or reads a resharded tensor."""
    graph = point.tables.graph
    for step in timeline_of(evaluator_of(point.tables), point.assignment).steps:
        node = None if step.node is None else graph.nodes[step.node]
        if isinstance(node, Op):
            yield node, step


def families(times: Mapping[str, Iterable[tuple[str, float]]]) -> Iterator[str]:
    """Yield a table of predicted times: a line per title, with the sum of seconds per family."""
    spent: dict[str, dict[str, float]] = {}
    for title, pairs in times.items():
        sums: dict[str, float] = defaultdict(float)
        for family, time_s in pairs:
            sums[family] += time_s
        spent[title] = sums
    names = sorted({name for own in spent.values() for name in own})
    yield f"| step | {' | '.join(names)} |"
    yield "|---|" + "---:|" * len(names)
    for title, own in spent.items():
        times_ms = " | ".join(f"{1e3 * own.get(name, 0.0):.2f} ms" for name in names)
        yield f"| {title} | {times_ms} |"
