"""A random assignment: the baseline that any search has to beat."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.comparison.case import Case, Limits, collect
from tensoropt.compiler.search.problem.problem import (
    EdgeTable,
    Problem,
    TableFrontier,
    nothing_allowed,
)

__all__ = ["agreeing", "random_assignment", "search"]

Allowed = list[NDArray[np.bool_]]


def search(case: Case, limits: Limits) -> TableFrontier:
    """Return a random allowed assignment, the same for the same seed."""
    return collect(case.problem, [random_assignment(case.problem, limits.seed)])


def random_assignment(problem: Problem, seed: int) -> NDArray[np.int32]:
    """Return an allowed assignment (int32, shape [n]), the same for the same seed.

    Nodes take, in a random order, an option drawn uniformly from those that the nodes decided
    so far and the pairs still open leave possible (arc consistency); where that runs into a dead
    end the last decision is taken back. Every allowed assignment can come out. Without dead ends a
    decision costs one pass over the tables of the nodes that it narrows; with them the search is
    exponential in the worst case.

    Raises UserError when no assignment has a finite time.
    """
    rng = np.random.default_rng(seed)
    search = _Search(problem, rng)
    allowed = [np.isfinite(node.time_s) for node in problem.nodes]
    if search.narrow(allowed, range(len(allowed))) is None or not search.decide(allowed):
        raise nothing_allowed()
    return np.array([int(np.flatnonzero(row)[0]) for row in search.result], dtype=np.int32)


def agreeing(problem: Problem, wished: Mapping[int, int]) -> dict[int, int]:
    """Return the ``wished`` options, by node, except those that earlier ones rule out.

    A constant that is pinned rules out what its readers could wish for: it cannot be sent between
    ranks. Checked is arc consistency, over pairs that are forbidden alone.
    """
    search = _Search(problem, np.random.default_rng(0))
    allowed = [np.isfinite(node.time_s) for node in problem.nodes]
    if search.narrow(allowed, range(len(allowed))) is None:
        raise nothing_allowed()
    kept = {}
    for node, option in wished.items():
        if not allowed[node][option]:
            continue
        after = search.fixed(allowed, node, option) if search.near[node] else allowed
        if after is not None:
            allowed, kept[node] = after, option
    return kept


class _Search:
    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self.rng = rng
        self.order = rng.permutation(len(problem.nodes))
        self.near: list[list[tuple[int, NDArray[np.bool_]]]] = [[] for _ in problem.nodes]
        self.result: Allowed = []
        for edge in problem.edges:
            self._link(edge)

    def _link(self, edge: EdgeTable) -> None:
        finite = np.isfinite(edge.time_s)
        if not finite.all():
            self.near[edge.a].append((edge.b, finite))
            self.near[edge.b].append((edge.a, finite.T))

    def narrow(self, allowed: Allowed, changed: range | list[int]) -> Allowed | None:
        """Drop, in place, entries with no partner on some edge; None when a node has none left."""
        todo = list(changed)
        while todo:
            node = todo.pop()
            if not allowed[node].any():
                return None
            for other, finite in self.near[node]:
                left = allowed[other] & finite[allowed[node]].any(axis=0)
                if (left != allowed[other]).any():
                    allowed[other] = left
                    todo.append(other)
        return allowed

    def decide(self, allowed: Allowed) -> bool:
        """Decide the nodes one by one, with an explicit stack of the options still to try."""
        stack = [self._options(allowed, 0)] if len(allowed) else []
        self.result = allowed
        while stack:
            depth, before, options = len(stack), *stack[-1]
            if not options:
                stack.pop()
                continue
            after = self.fixed(before, int(self.order[depth - 1]), options.pop())
            if after is None:
                continue
            if depth == len(allowed):
                self.result = after
                return True
            stack.append(self._options(after, depth))
        return len(allowed) == 0

    def _options(self, allowed: Allowed, depth: int) -> tuple[Allowed, list[int]]:
        return allowed, list(self.rng.permutation(np.flatnonzero(allowed[self.order[depth]])))

    def fixed(self, allowed: Allowed, node: int, entry: int) -> Allowed | None:
        after = list(allowed)
        after[node] = np.arange(len(allowed[node])) == entry
        return self.narrow(after, [node])
