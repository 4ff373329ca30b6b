"""Makes a graph that fails small: nodes become weights that hold what they gave."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from fuzz.gradients.drawing import live
from fuzz.gradients.graph import Graph, Node, replay, tensor_of
from fuzz.gradients.trial import FAILED, Outcome

__all__ = ["minimise"]

_MOST_TRIALS = 150
_KEPT = 30  # characters of a message, without its numbers, that say what is wrong


def minimise(graph: Graph, attempt: Callable[[Graph], Outcome]) -> tuple[Graph, Outcome]:
    """Return a smaller graph that fails alike, and how; tries at most so many graphs."""
    outcome, left = attempt(graph), _MOST_TRIALS
    smaller = True
    while smaller and left > 0:
        smaller = False
        for candidate in _smaller(graph):
            left -= 1
            if left < 0:
                break
            found = attempt(candidate)
            if found.kind == FAILED and _class(found.why) == _class(outcome.why):
                graph, outcome, smaller = candidate, found, True
                break
    return graph, outcome


def _class(why: str) -> str:
    """Return what a message says apart from numbers and names."""
    return re.sub(r"\S*\d\S*", "", why)[:_KEPT]


def _smaller(graph: Graph) -> Iterator[Graph]:
    """Yield graphs with less: no further outputs, fewer terms, a node fewer."""
    if graph.outputs:
        yield live(replace(graph, outputs=()))
    values = _values(graph)
    for index, node in enumerate(graph.nodes):
        if node.op_type == "Sum" and len(node.operands) > 1:
            whole = values[node.results[0]].shape
            for name in dict.fromkeys(n for n in node.operands if values[n].shape == whole):
                yield _with(graph, index, replace(node, operands=(name,)))
    for index in reversed(range(len(graph.nodes))):
        if graph.result not in graph.nodes[index].results:
            yield _cut(graph, index, values)


def _with(graph: Graph, index: int, node: Node) -> Graph:
    return live(replace(graph, nodes=(*graph.nodes[:index], node, *graph.nodes[index + 1 :])))


def _values(graph: Graph) -> dict[str, Any]:
    values = {name: tensor_of(array, torch.float64) for name, array in graph.leaves.items()}
    replay(graph.nodes, values)
    return values


def _cut(graph: Graph, index: int, values: Mapping[str, Any]) -> Graph:
    """Return the graph with a node's results as leaves."""
    weights, literals = dict(graph.weights), dict(graph.literals)
    for name in filter(None, graph.nodes[index].results):
        array = values[name].numpy()
        floats = array.dtype.kind == "f"
        table = weights if floats and array.ndim else literals
        table[name] = array.astype(graph.dtype) if floats else array
    nodes = (*graph.nodes[:index], *graph.nodes[index + 1 :])
    return live(replace(graph, nodes=nodes, weights=weights, literals=literals))
