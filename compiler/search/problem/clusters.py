"""Clusters of a training step: leaders with a choice, and the followers of each leader.

The backward ops of an op, their recomputed operands and the update of a parameter are followers. So
a step has only as many variables as its forward graph, parameters and gradients. Equal clusters are
of one *kind*, for which everything is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tensoropt.compiler.program.constants import whole_nodes
from tensoropt.compiler.program.graph import Argument, Graph, Node, Op, Result, once_per_graph
from tensoropt.compiler.program.program import variables
from tensoropt.compiler.support.identity import Same

__all__ = ["Cluster", "clusters_of", "sums_of"]


@dataclass
class Cluster:
    """A leader and its followers.

    ``members`` are nodes in program order, the leader first; ``values`` are the values that they
    read or make. Members of clusters of equal ``kind`` correspond, and so do their values, in their
    order.
    """

    leader: int
    members: list[int]
    values: list[int] = field(default_factory=list)
    kind: int = -1


@once_per_graph
def clusters_of(graph: Graph) -> list[Cluster]:
    """Return the clusters in the order of their leaders, which are the same on every mesh.

    A private parameter is in no cluster; a node without a leader is a cluster of its own. Linear in
    the operands.
    """
    clusters: dict[int, Cluster] = {}
    for index in variables(graph):
        if graph.nodes[index].follows is None:
            clusters[index] = Cluster(index, [index])
    for index, node in enumerate(graph.nodes):
        if node.follows is not None:
            clusters[node.follows].members.append(index)
    for cluster in clusters.values():
        _describe(graph, cluster)
    return list(clusters.values())


def _describe(graph: Graph, cluster: Cluster) -> None:
    """Number the values, and derive the kind from the members and their dataflow."""
    numbers: dict[int, int] = {}

    def number(value: int) -> int:
        return numbers.setdefault(value, len(numbers))

    places = {member: place for place, member in enumerate(cluster.members)}
    kinds = []
    for member in cluster.members:
        node = graph.nodes[member]
        reads = tuple(_read(graph, node, number))
        makes = tuple((number(v), Same(graph.values[v].info)) for v in node.results)
        whole = member in whole_nodes(graph)
        kinds.append((type(node), node.constant, whole, _traits(node, places), reads, makes))
    leader = graph.nodes[cluster.leader]
    gradients = leader.gradients if isinstance(leader, Op) else ()
    pairs = tuple((numbers.get(a, -1), numbers.get(b, -1)) for a, b in gradients)
    cluster.values = list(numbers)
    cluster.kind = graph.intern((tuple(kinds), pairs))


def _traits(node: Node, places: Mapping[int, int]) -> object:
    """Return the properties of a node of its type that a kind depends on."""
    if isinstance(node, Argument):
        return node.state
    if isinstance(node, Result):
        return node.updates is None
    repeats = None if node.repeats is None else places.get(node.repeats)
    return Same(node.rule), Same(node.info), node.phase, node.held, repeats


def _read(graph: Graph, node: Node, number: Callable[[int], int]) -> Iterator[object]:
    """Yield the properties of each operand that a kind depends on."""
    for value in node.operands:
        if value is None:
            yield None
            continue
        made, storage = graph.producer(value), graph.storage
        origin = (made.phase, made.held) if isinstance(made, Op) else value in storage.state
        private = value in storage.private
        yield number(value), Same(graph.values[value].info), made.constant, private, origin


def sums_of(graph: Graph) -> dict[int, tuple[int, ...]]:
    """Return the nodes that add the gradients of each value.

    The first adds the gradients of all readers, the second of all but the last. The operands of an
    addition share the gradient of its result. The sum then belongs to the last value with that
    gradient. Linear in the nodes.
    """
    found: dict[int, tuple[int, ...]] = {}
    taken: set[int] = set()
    for node in reversed(graph.nodes):
        for value, gradient in node.gradients if isinstance(node, Op) else ():
            outer = graph.values[gradient].producer
            if outer not in taken and _is_sum(graph.nodes[outer]):
                taken.add(outer)
                found[value] = (outer, *_inner(graph, outer))
    return found


def _is_sum(node: Node) -> bool:
    """Return whether a node adds the gradients that the readers of a value compute for it."""
    if not isinstance(node, Op) or node.follows is not None:
        return False
    return node.phase == "backward" and node.info.name == "Sum"


def _inner(graph: Graph, outer: int) -> Iterator[int]:
    made = (graph.values[v].producer for v in graph.nodes[outer].operands if v is not None)
    for node in made:
        uses = graph.values[graph.nodes[node].results[0]].uses
        if _is_sum(graph.nodes[node]) and len(uses) == 1:
            yield node
