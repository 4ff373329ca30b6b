"""The cost of changing one node of an assignment, from its own table and those of its edges."""

from __future__ import annotations

import numpy as np

from tensoropt.compiler.comparison.case import Assignment
from tensoropt.compiler.search.problem.problem import Floats, Problem

__all__ = ["Neighbours"]


class Neighbours:
    """Per node, its times and the edges at it, each with the other node's options first."""

    def __init__(self, problem: Problem) -> None:
        self.own = [node.time_s for node in problem.nodes]
        self.near: list[list[tuple[int, Floats]]] = [[] for _ in problem.nodes]
        turned: dict[int, Floats] = {}  # equal ops share a table: one copy of it turned around
        for edge in problem.edges:
            table = edge.time_s
            if id(table) not in turned:
                turned[id(table)] = np.ascontiguousarray(table.T)
            self.near[edge.b].append((edge.a, table))
            self.near[edge.a].append((edge.b, turned[id(table)]))

    def times_s(self, node: int, assignment: Assignment) -> Floats:
        """Return the time that ``node`` accounts for in each of its options, shape [K]."""
        total: Floats = self.own[node].copy()
        for other, table in self.near[node]:
            total += table[assignment[other]]
        return total

    def time_s(self, node: int, option: int, assignment: Assignment) -> float:
        """Return one of :meth:`times_s`, touching nothing else."""
        total = self.own[node].item(option)
        for other, table in self.near[node]:
            total += table.item(assignment.item(other), option)
        return total
