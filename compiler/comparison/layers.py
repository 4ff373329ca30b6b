"""Layers: the nodes of a problem in groups, each around one op with weights."""

from __future__ import annotations

from itertools import chain

from tensoropt.compiler.comparison.case import Case
from tensoropt.compiler.program.graph import Graph, Node, Op
from tensoropt.compiler.search.problem.problem import Problem
from tensoropt.compiler.search.problem.tables import MeshTables

__all__ = ["layers_of"]


def layers_of(case: Case) -> list[list[int]]:
    """Return the nodes of the problem in layers, each in order; linear in the edges.

    An op with weights opens a layer: a product, a convolution, a look-up in a table. Any other
    op that depends on the graph inputs belongs to the layer of its latest operand. Constants, and
    ops before the first layer, belong to the layer of their first use. Without a model every node
    is a layer.
    """
    count = len(case.problem.nodes)
    if case.tables is None:
        return [[node] for node in range(count)]
    layer = _layer_of_nodes(case.tables)
    _place_copies(case.problem, layer)
    groups: dict[int, list[int]] = {}
    for node in range(count):
        groups.setdefault(layer[node], []).append(node)
    return list(groups.values())


def _layer_of_nodes(tables: MeshTables) -> dict[int, int]:
    """Return, per position in the problem, the node of the graph that its layer is named after."""
    graph, layer = tables.graph, {}
    for index, node in enumerate(graph.nodes):
        if _opens(graph, node):
            layer[index] = index
        elif not node.constant:
            before = [layer[n] for n in _producers(graph, node) if n in layer]
            layer.update({index: max(before)} if before else {})
    for index in reversed(range(len(graph.nodes))):
        after = [layer[n] for n in _readers(graph, graph.nodes[index]) if n in layer]
        layer.setdefault(index, min(after, default=index))
    return {position: layer[index] for position, index in enumerate(tables.leaders)}


def _opens(graph: Graph, node: Node) -> bool:
    """Say whether an op that runs reads weights: a matrix with a dimension that its results lack.

    Masks and biases run along dimensions of the result.
    """
    if not isinstance(node, Op) or node.constant:
        return False
    made = set(chain(*node.rule.results))
    for value, factors in zip(node.operands, node.rule.operands, strict=False):
        info = None if value is None else graph.values[value].info
        if value is None or info is None or info.rank < 2 or value not in graph.storage.weights:
            continue
        sizes = zip(info.shape, factors, strict=True)
        if any(size != 1 and (f is None or f not in made) for size, f in sizes):
            return True
    return False


def _producers(graph: Graph, node: Node) -> list[int]:
    return [graph.values[value].producer for value in node.operands if value is not None]


def _readers(graph: Graph, node: Node) -> list[int]:
    return list(chain(*([n for n, _ in graph.values[value].uses] for value in node.results)))


def _place_copies(problem: Problem, layer: dict[int, int]) -> None:
    """Put each copy of a shared tensor into the layer that makes the tensor."""
    for edge in problem.edges:
        if edge.b not in layer:
            layer[edge.b] = layer[edge.a]
