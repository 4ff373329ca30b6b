"""Clusters of a training step: a node that chooses, and those whose strategies follow from its.

The backward ops of an op, what is computed anew for them, and the update of a parameter choose
nothing by themselves, so that a step has as many variables as its forward graph, parameters and
gradients. Clusters that look alike are of one *kind*, for which everything is worked out once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tensoropt.compiler.search.graph import Graph, Node

__all__ = ["Cluster", "clusters_of"]


@dataclass
class Cluster:
    """``members`` are nodes in program order, the leader first; ``values`` what they touch.

    Members of clusters of equal ``kind`` correspond, and so do their values, in their order.
    """

    leader: int
    members: list[int]
    values: list[int] = field(default_factory=list)
    kind: object = None


def clusters_of(graph: Graph) -> list[Cluster]:
    """Return the clusters in the order of their leaders; linear in the operands.

    A tied parameter is in none; a node that follows nothing that is there is on its own.
    """
    clusters: dict[int, Cluster] = {}
    for index, node in enumerate(graph.nodes):
        if not node.tied and node.follows is None:
            clusters[index] = Cluster(index, [index])
    for index, node in enumerate(graph.nodes):
        if node.follows is not None:
            clusters[node.follows].members.append(index)
    for cluster in clusters.values():
        _describe(graph, cluster)
    return list(clusters.values())


def _describe(graph: Graph, cluster: Cluster) -> None:
    """Number the values and find the kind: what members are, and how they hang together."""
    numbers: dict[int, int] = {}

    def number(value: int) -> int:
        return numbers.setdefault(value, len(numbers))

    places = {member: place for place, member in enumerate(cluster.members)}
    kinds = []
    for member in cluster.members:
        node = graph.nodes[member]
        reads = tuple(_read(graph, node, number))
        makes = tuple((number(v), id(graph.values[v].info)) for v in node.results)
        repeats = None if node.repeats is None else places.get(node.repeats)
        own = (node.kind, id(node.rule), id(node.info), node.phase, node.state, node.constant)
        kinds.append((*own, node.held, node.whole, node.updates is None, repeats, reads, makes))
    leader = graph.nodes[cluster.leader]
    pairs = tuple((numbers.get(a, -1), numbers.get(b, -1)) for a, b in leader.gradients)
    cluster.values = list(numbers)
    cluster.kind = (tuple(kinds), pairs)


def _read(graph: Graph, node: Node, number: object) -> Iterator[object]:
    """Yield what a kind has to know of each operand: which value, and who made it."""
    assert callable(number)
    for value in node.operands:
        if value is None:
            yield None
            continue
        made = graph.producer(value)
        info = graph.values[value].info
        traits = (made.constant, made.tied, made.state is not None, made.phase, made.held)
        yield number(value), id(info), *traits
