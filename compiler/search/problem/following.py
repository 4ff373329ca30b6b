"""How the followers of an op split, axis by axis, given what a mesh axis does to the op itself.

A gradient runs over the loops of the op that it belongs to: where an axis splits one of them, the
axis splits that of the gradient's ops which needs no data moved, or the least. So the strategies of
a whole cluster follow from that of its leader, on any mesh.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tensoropt.compiler.layout.rule import AxisRole
from tensoropt.compiler.search.problem.graph import Graph, Node
from tensoropt.compiler.sharding.rule.op_info import Shape
from tensoropt.compiler.sharding.rule.strategies import axis_roles, placements
from tensoropt.runtime.layout.layout import REPLICATE, Placement

__all__ = ["follow"]

# What it costs, in times the bytes of a tensor, to place otherwise along one axis. A slice of a
# whole tensor is free, but what is made of slices, of sums too, is most often gathered again.
_GATHER, _REDUCE, _SCATTER, _EXCHANGE, _SLICE = 1.0, 2.0, 2.1, 1.0, 1.0


def follow(graph: Graph, leader: int, members: Sequence[int], role: AxisRole) -> list[AxisRole]:
    """Return what an axis does to each of ``members`` where it does ``assignment`` to ``leader``.

    Arguments and results among the members lie as the first result of the leader does, which the
    caller sees to; ``None`` stands for them here. Where the axis replicates the leader it does so
    with all of them. Linear in the operands of the members, times the loops of each.
    """
    if role is None:
        return [None] * len(members)
    walk = _Walk(graph, role)
    walk.lead(leader)
    return [walk.member(graph.nodes[index]) for index in members]


@dataclass
class _Walk:
    """The placements of values on one axis, as far as they are known."""

    graph: Graph
    assignment: AxisRole
    placed: dict[int, Placement] = field(default_factory=dict)
    like: tuple[Shape, Placement] | None = None
    gradient_of: dict[int, int] = field(default_factory=dict)

    def lead(self, leader: int) -> None:
        node = self.graph.nodes[leader]
        assert node.rule is not None
        operands, results = placements(node.rule, self.assignment)
        self._note(zip(node.operands, operands, strict=False))
        self._note(zip(node.results, results, strict=True))
        first = self.graph.values[node.results[0]].info
        self.like = None if first is None else (first.shape, results[0])
        self.gradient_of = {gradient: value for value, gradient in node.gradients}

    def _note(self, placed: Iterable[tuple[int | None, Placement]]) -> None:
        for value, placement in placed:
            if value is not None and not self.graph.producer(value).constant:
                self.placed.setdefault(value, placement)

    def member(self, node: Node) -> AxisRole:
        if node.rule is None or node.constant:
            return None
        best, least = None, math.inf
        for role in axis_roles(node.rule):
            operands, results = placements(node.rule, role)
            cost = self._cost(node, operands) + (0.5 if role is None else 0.0)
            cost += 0.0 if self._is_alike(node, results[0]) else 0.75
            if cost < least:
                best, least = role, cost
        operands, results = placements(node.rule, best)
        self._note(zip(node.operands, operands, strict=False))
        self._note(zip(node.results, results, strict=True))
        return best

    def _is_alike(self, node: Node, placement: Placement) -> bool:
        """Say whether a result, if of the rank of the leader's, lies as that does.

        It is where nothing else decides, such as for what is made of literals.
        """
        info = self.graph.values[node.results[0]].info
        if self.like is None or info is None or info.rank != len(self.like[0]):
            return True
        shape, like = self.like
        if not like.is_split:
            return True
        return (
            placement == like if info.shape[like.dim] == shape[like.dim] else placement.is_replicate
        )

    def _cost(self, node: Node, wanted: Sequence[Placement]) -> float:
        total = 0.0
        for value, placement in zip(node.operands, wanted, strict=False):
            info = None if value is None else self.graph.values[value].info
            layout = None if value is None else self._held(value)
            if layout is None:
                total += placement.is_partial  # an argument that nothing has read is never that
            elif info is not None:
                total += _move(layout, placement) * info.memory_bytes
        return total

    def _held(self, value: int) -> Placement | None:
        """Return how a value lies; ``None`` where that is up to who reads it."""
        if value not in self.placed and value in self.gradient_of:
            of = self.placed.get(self.gradient_of[value])
            if of is not None:
                self.placed[value] = REPLICATE if of.is_partial else of
        return self.placed.get(value)


def _move(placement: Placement, wanted: Placement) -> float:
    if placement == wanted:
        return 0.0
    if wanted.is_partial:
        return math.inf
    if placement.is_partial:
        return _REDUCE if wanted.is_replicate else _SCATTER
    if placement.is_replicate:
        return _SLICE
    return _GATHER if wanted.is_replicate else _EXCHANGE
