"""The graphs of a model: the main graph, and graphs in attributes of its nodes."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

__all__ = ["Scope", "names_read", "subgraphs"]

Scope = tuple[tuple[int, str], ...]
"""The path to a graph: (index of the node, name of its attribute) from the main graph inwards."""


def subgraphs(graph: onnx.GraphProto, scope: Scope = ()) -> Iterator[tuple[onnx.GraphProto, Scope]]:
    """Yield ``graph`` and all graphs inside it, with their scopes, in the order of their nodes."""
    yield graph, scope
    for index, node in enumerate(graph.node):
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from subgraphs(attribute.g, (*scope, (index, attribute.name)))


def names_read(graph: onnx.GraphProto) -> set[str]:
    """Return the names that the nodes and outputs of ``graph`` and of all graphs inside it read."""
    graphs = [inner for inner, _ in subgraphs(graph)]
    names = {name for inner in graphs for node in inner.node for name in node.input}
    return names.union(value.name for inner in graphs for value in inner.output)
