"""Differences between neighbouring points of a frontier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensoropt.compiler.program.graph import Op
from tensoropt.compiler.report.explain.splits import Words
from tensoropt.compiler.report.explanation import (
    Change,
    Neighbour,
    Operation,
    Split,
    joined,
    splits_text,
)
from tensoropt.compiler.search.frontier.points import (
    micro_batches_of,
    recompute_of,
    replicas_of,
    schedule_of,
    stages_of,
)
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["Groups", "neighbour"]

Groups = Sequence[Mapping[str, Sequence[Operation]]]
"""Groups of equal layers: the ops of each layer, by its name."""


def neighbour(other: FrontierPoint, groups: Groups) -> Neighbour:
    """Return how ``other`` differs from the point that has the ops ``groups``.

    Ops are matched by name; equal changes in the same place of equal layers are joined. Linear in
    the ops.
    """
    after = _splits(other)
    found: dict[tuple[object, ...], list[tuple[str, Operation]]] = {}
    others = 0
    for number, group in enumerate(groups):
        for name, operations in group.items():
            for place, operation in enumerate(operations):
                splits = after.get(operation.name)
                if splits is None or splits == operation.splits:
                    continue
                if operation.main:
                    change = tuple(split.without_weight() for split in splits)
                    found.setdefault((number, place, change), []).append((name, operation))
                else:
                    others += 1
    return Neighbour(
        other.index,
        other.mesh,
        recompute_of(other),
        micro_batches_of(other),
        other.time_s,
        other.process_bytes,
        other.memory_bytes,
        other.is_above_capacity,
        tuple(_change(rows, after) for rows in found.values()),
        others,
        stages_of(other),
        schedule_of(other),
        len(replicas_of(other)),
    )


def _change(rows: Sequence[tuple[str, Operation]], after: Mapping[str, Sequence[Split]]) -> Change:
    names, first = [name for name, _ in rows], rows[0][1]
    both = (first.splits, after[first.name])
    texts = (splits_text([split.without_weight() for split in splits]) for splits in both)
    return Change(joined(names), len(names), first.name, first.op, first.weights, *texts)


def _splits(point: FrontierPoint) -> dict[str, tuple[Split, ...]]:
    """Return the splits of each op of a point, by the name of its node."""
    graph = point.tables.graph
    words = Words(graph, Mesh(point.mesh))
    return {
        node.name: words.splits(node, point.strategies[index])
        for index, node in enumerate(graph.nodes)
        if isinstance(node, Op) and not node.constant
    }
