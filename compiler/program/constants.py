"""Values that depend on weights and literals alone: which are equal, and which are kept whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tensoropt.compiler.program.graph import Argument, Graph, Node, Op, once_per_graph
from tensoropt.compiler.support.identity import Same
from tensoropt.dialects import onnx

__all__ = ["equal_constants", "weight_ops", "whole_nodes"]

# A constant of many uses and below this part of all parameter bytes is not worth a variable. It
# would couple all its uses (the angles of rotary embeddings couple every layer) to save next to
# nothing. Few uses cost the search nothing: an embedding tied to the output is worth its gigabyte.
_WHOLE_BELOW = 0.01
_FEW_USES = 2


@once_per_graph
def whole_nodes(graph: Graph) -> frozenset[int]:
    """Return the nodes with results that every rank keeps whole: small constants of many uses.

    So are small values that a training step computes from parameters alone, such as the angles of
    trained rotary embeddings, and the sums of their gradients. Linear in the operands.
    """
    weights = (n for n in graph.nodes if isinstance(n, Argument) and n.is_weight)
    limit = _WHOLE_BELOW * sum(_bytes(graph, node) for node in weights)
    found = set[int]()
    for index, node in enumerate(graph.nodes):
        if node.constant and _bytes(graph, node) < limit and len(_readers(graph, node)) > _FEW_USES:
            found.add(index)
    for index in weight_ops(graph):
        node = graph.op(index)
        if node.constant or _bytes(graph, node) >= limit:
            continue
        readers = _readers(graph, node)
        if sum(isinstance(own, Op) and own.phase == "forward" for own in readers) > _FEW_USES:
            found |= {index, *_sums(graph, (gradient for _, gradient in node.gradients))}
    return frozenset(found) - _pinned(graph, found)


def _readers(graph: Graph, node: Node) -> list[Node]:
    """Return the reader of each use."""
    return [graph.nodes[reader] for v in node.results for reader, _ in graph.values[v].uses]


def _sums(graph: Graph, gradients: Iterable[int | None]) -> Iterator[int]:
    """Yield the nodes that add up ``gradients``, and the inner sums that these read."""
    for gradient in gradients:
        if gradient is not None:
            index = graph.values[gradient].producer
            node = graph.nodes[index]
            if isinstance(node, Op) and node.follows is None and node.info.name == "Sum":
                yield index
                yield from _sums(graph, node.operands)


def _bytes(graph: Graph, node: Node) -> int:
    infos = [graph.values[value].info for value in node.results]
    return sum(info.memory_bytes for info in infos if info is not None)


def _pinned(graph: Graph, whole: set[int]) -> set[int]:
    """Return the nodes of constants that are pinned, or made of such: no rank can gather them."""
    found = {index for index in graph.conditions if graph.nodes[index].constant or index in whole}
    for index, node in enumerate(graph.nodes) if found else ():
        makers = {graph.values[v].producer for v in node.operands if v is not None}
        if node.constant and makers & found:
            found.add(index)
    return found


def weight_ops(graph: Graph) -> list[int]:
    """Return the forward ops that read weights, literals and results of such ops alone.

    Random ops are none of them. Linear in the operands.
    """
    arguments = (node for node in graph.nodes if isinstance(node, Argument) and not node.is_fed)
    fixed, found = {value for node in arguments for value in node.results}, list[int]()
    for index, node in enumerate(graph.nodes):
        if not isinstance(node, Op) or not node.is_forward or node.is_random:
            continue
        if fixed.issuperset(value for value in node.operands if value is not None):
            fixed.update(node.results)
            found.append(index)
    return found


@once_per_graph
def equal_constants(graph: Graph) -> list[int]:
    """Return per node the first node that makes equal constants; itself for another node."""
    first: dict[object, int] = {}
    found: list[int] = []
    for index, node in enumerate(graph.nodes):
        key = _content(graph, node, found) if node.constant else None
        found.append(first.setdefault(index if key is None else key, index))
    return found


def _content(graph: Graph, node: Node, equal: list[int]) -> object:
    """Return a key of all that the results of a constant op depend on; ``None`` for others."""
    if not isinstance(node, Op) or node.source is None or len(node.source.regions):
        return None
    read = (None if v is None else graph.values[v] for v in node.operands)
    made = tuple(v and (equal[v.producer], v.index) for v in read)
    literal = node.source.attributes["value"] if node.source.name == onnx.CONSTANT else None
    return Same(node.info), made, literal
