"""Parts of a problem, each solved while the rest is unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.comparison.case import Assignment
from tensoropt.compiler.search.engine.ft import solve_min_time
from tensoropt.compiler.search.problem.problem import EdgeTable, Floats, NodeTable, Problem

__all__ = ["Block", "blocks_of"]

Solved = dict[tuple[int, ...], Assignment]


@dataclass
class _Outer:
    """An edge that leaves a block: its node within, the one without, times [without, within]."""

    inside: int
    outside: int
    times_s: Floats


@dataclass
class Block:
    """Some nodes of a problem, their times, the edges among them and the edges that leave them.

    ``known`` holds what was found, by the options around; blocks that are equal share it.
    """

    nodes: NDArray[np.intp]
    own: list[Floats] = field(default_factory=list)
    inner: list[EdgeTable] = field(default_factory=list)
    outer: list[_Outer] = field(default_factory=list)
    known: Solved = field(default_factory=dict)

    def best(self, assignment: Assignment) -> Assignment:
        """Return the options of least time for the nodes, all others as in ``assignment``."""
        around = tuple(assignment.item(edge.outside) for edge in self.outer)
        if around not in self.known:
            self.known[around] = self._solve(around)
        return self.known[around]

    def time_s(self, mine: Assignment, assignment: Assignment) -> float:
        """Return the time that the nodes account for with options ``mine``."""
        total = sum(times.item(at) for times, at in zip(self.own, mine.tolist(), strict=True))
        total += sum(e.time_s.item(mine.item(e.a), mine.item(e.b)) for e in self.inner)
        return total + sum(
            e.times_s.item(assignment.item(e.outside), mine.item(e.inside)) for e in self.outer
        )

    def _solve(self, around: tuple[int, ...]) -> Assignment:
        times = [own.copy() for own in self.own]
        for edge, option in zip(self.outer, around, strict=True):
            times[edge.inside] += edge.times_s[option]
        if len(times) == 1:
            return np.array([np.argmin(times[0])], dtype=np.int32)
        return solve_min_time(Problem([NodeTable(t) for t in times], self.inner)).assignment

    def signature(self) -> tuple[object, ...]:
        """Return what equal blocks have in common; tables are known by identity."""
        return (
            tuple(map(id, self.own)),
            tuple((edge.a, edge.b, id(edge.time_s)) for edge in self.inner),
            tuple((edge.inside, id(edge.times_s)) for edge in self.outer),
        )


def blocks_of(problem: Problem, groups: Sequence[Sequence[int]]) -> list[Block]:
    """Return a block for each of ``groups``, which hold every node once; linear in the edges."""
    blocks = [Block(np.array(group, dtype=np.intp)) for group in groups]
    place = {node: (b, at) for b, group in enumerate(groups) for at, node in enumerate(group)}
    for block in blocks:
        block.own = [problem.nodes[node].time_s for node in block.nodes]
    turned: dict[int, Floats] = {}  # equal edges share a table: one copy of it turned around
    for edge in problem.edges:
        (block_a, a), (block_b, b) = place[edge.a], place[edge.b]
        if block_a == block_b:
            blocks[block_a].inner.append(EdgeTable(a, b, edge.time_s))
            continue
        other = turned.setdefault(id(edge.time_s), np.ascontiguousarray(edge.time_s.T))
        blocks[block_a].outer.append(_Outer(a, edge.b, other))
        blocks[block_b].outer.append(_Outer(b, edge.a, edge.time_s))
    shared: dict[object, Solved] = {}
    for block in blocks:
        block.known = shared.setdefault(block.signature(), block.known)
    return blocks
