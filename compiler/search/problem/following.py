"""Splits of the followers of an op, axis by axis, from the role of a mesh axis for the op.

A gradient has the loops of its op. If an axis splits one of them, it splits the loop of each
gradient op that needs the least communication. So the strategies of a whole cluster follow from its
leader's strategy, on any mesh.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tensoropt.compiler.layout.rule import AxisRole
from tensoropt.compiler.program.graph import Graph, Node, Op
from tensoropt.compiler.sharding.rule.op_info import Shape
from tensoropt.compiler.sharding.rule.strategies import axis_roles, placements
from tensoropt.runtime.layout.layout import REPLICATE, Placement

__all__ = ["follow"]

# Costs of a change of placement along one axis, relative to the bytes of a tensor. A slice of a
# replicated tensor is free, but results of slices and of sums are most often gathered again.
_GATHER, _REDUCE, _SCATTER, _EXCHANGE, _SLICE = 1.0, 2.0, 2.1, 1.0, 1.0


def follow(graph: Graph, leader: int, members: Sequence[int], role: AxisRole) -> list[AxisRole]:
    """Return the role of an axis for each of ``members``, if it has ``role`` for ``leader``.

    Arguments and results among the members have the layout of the leader's first result, which the
    caller applies; ``None`` stands for them here. An axis that replicates the leader replicates all
    members. Linear in the operands of the members, times the loops of each.
    """
    if role is None:
        return [None] * len(members)
    walk = _Walk(graph, role)
    walk.lead(leader)
    return [walk.member(graph.nodes[index]) for index in members]


@dataclass
class _Walk:
    """The known placements of values on one axis."""

    graph: Graph
    assignment: AxisRole
    placed: dict[int, Placement] = field(default_factory=dict)
    like: tuple[Shape, Placement] | None = None
    gradient_of: dict[int, int] = field(default_factory=dict)

    def lead(self, leader: int) -> None:
        node = self.graph.op(leader)
        operands, results = placements(node.rule, self.assignment)
        self._note(zip(node.operands, operands, strict=False))
        self._note(zip(node.results, results, strict=True))
        first = self.graph.values[node.results[0]].info
        self.like = None if first is None else (first.shape, results[0])
        self.gradient_of = {gradient: value for value, gradient in node.gradients}

    def _note(self, placed: Iterable[tuple[int | None, Placement]]) -> None:
        for value, placement in placed:
            if value is not None and value not in self.graph.storage.constants:
                self.placed.setdefault(value, placement)

    def member(self, node: Node) -> AxisRole:
        if not isinstance(node, Op) or node.constant:
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
        """Return whether a result of the leader's rank has the leader's placement.

        This decides if nothing else does, such as for values made of literals.
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
            layout = None if value is None else self._find_placement(value)
            if layout is None:
                total += placement.is_partial  # an unread argument is never partial
            elif info is not None:
                total += _move(layout, placement) * info.memory_bytes
        return total

    def _find_placement(self, value: int) -> Placement | None:
        """Return the placement of a value; ``None`` if its readers decide it."""
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
