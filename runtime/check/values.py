"""Intermediate values of the model, and the tensors in a rank's graph that are parts of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensoropt.runtime.plan.entries import StrategyEntry

if TYPE_CHECKING:
    import onnx

__all__ = ["Inner", "inner_values", "row_of"]

_CONSTANT = "Constant"


@dataclass(frozen=True)
class Inner:
    """An intermediate value of the model that a rank has a part of.

    ``row`` is the index of its node among the plan's strategies, ``result`` the index of the
    result. ``local`` is its name in the rank's graph, ``name`` its name in the model.
    """

    row: int
    result: int
    local: str
    name: str


def inner_values(
    graph: onnx.GraphProto, model: onnx.GraphProto, rows: Sequence[StrategyEntry]
) -> Iterator[Inner]:
    """Yield the values that both ``model`` and the graph of a rank have, in program order.

    The node that computes a row's result has the name of the row in both graphs. Values of unnamed
    or fused nodes, and of nodes with an ambiguous name, are left out.
    """
    counts = Counter(row["node"] for row in rows)
    ours, theirs = _by_name(graph), _by_name(model)
    for at, row in enumerate(rows):
        local, own = ours.get(row["node"]), theirs.get(row["node"])
        made = len(row["results"])
        if local is None or own is None or row["op"] == _CONSTANT or counts[row["node"]] > 1:
            continue
        if made != 1 and not len(local.output) == len(own.output) == made:
            continue
        for result, layout in enumerate(row["results"]):
            if layout and local.output[result] and own.output[result]:
                yield Inner(at, result, local.output[result], own.output[result])


def _by_name(graph: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    """Return the nodes that have a unique name, by name."""
    counts = Counter(node.name for node in graph.node)
    return {node.name: node for node in graph.node if node.name and counts[node.name] == 1}


def row_of(name: str, rows: frozenset[str] | set[str]) -> str | None:
    """Return the row that a node of a rank's graph belongs to, None if unknown.

    The steps of ``fc`` are called ``fc.Mul``, ``fc.AllReduce_1``.
    """
    while name not in rows:
        name, point, _ = name.rpartition(".")
        if not point:
            return None
    return name
