"""Refinement of a mesh's cost tables by the costs of its points as programs.

Tables charge at most the memory of a program. If the program of a point needs more, and no other
program is about as good as the point, cuts raise the charge (``problem/cuts.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tensoropt.compiler.program.evaluate import ProgramCost, evaluator_of
from tensoropt.compiler.search.frontier.bounds import NOTHING
from tensoropt.compiler.search.problem.cost_tables import Assignment
from tensoropt.compiler.search.problem.cuts import Cuts
from tensoropt.compiler.search.problem.problem import ROUNDING, Floats, Problem, TablePoint
from tensoropt.compiler.search.problem.tables import MeshTables

__all__ = ["Lessons", "overhead_s", "shortfalls"]


class Lessons:
    """The costs of programs on one mesh, each computed once, and the cuts that follow."""

    def __init__(self, tables: MeshTables) -> None:
        self.tables = tables
        self.cuts = Cuts(tables) if tables.learns else None
        self._costs: dict[bytes, ProgramCost] = {}

    def __len__(self) -> int:
        return 0 if self.cuts is None else len(self.cuts)

    @property
    def problem(self) -> Problem:
        """The tables with all cuts."""
        own = self.tables.problem
        return own if self.cuts is None or not len(self.cuts) else self.cuts.added_to(own)

    def cost(self, assignment: Assignment) -> tuple[ProgramCost, bool]:
        """Return the cost of a plan as a program, and whether it is new."""
        key = assignment.tobytes()
        is_new = key not in self._costs
        if is_new:
            self._costs[key] = evaluator_of(self.tables).evaluate(assignment)
        return self._costs[key], is_new

    def learn(self, points: Iterable[TablePoint]) -> bool:
        """Learn why the programs of points need more than the tables charge.

        Returns whether anything is new.
        """
        if self.cuts is None:
            return False
        return any([self.cuts.learn(point) for point in points if self._is_short(point)])

    def forget(self) -> None:
        """Drop all cuts."""
        if self.cuts is not None:
            self.cuts = Cuts(self.tables)

    def _is_short(self, point: TablePoint) -> bool:
        cost, _ = self.cost(self.tables.decode(point.assignment))
        return cost.transient_bytes > point.transient


def shortfalls(
    points: Sequence[TablePoint], costs: Sequence[tuple[float, float]], more_s: float
) -> Floats:
    """Return the factor by which the best program is worse than each point of the tables, from 1.

    ``costs`` are seconds and bytes. Every program adds ``more_s`` to the time by the tables.
    """
    time_s = np.array([max(point.time + more_s, NOTHING) for point in points])
    memory = np.array([max(point.memory, 1.0) for point in points])
    least = np.full(len(points), np.inf)
    for cost_s, cost_bytes in ((max(a, NOTHING), max(b, 1.0)) for a, b in costs):
        np.minimum(least, np.maximum(cost_s / time_s, cost_bytes / memory), out=least)
    return np.where(least < 1 + ROUNDING, 1.0, least)


def overhead_s(tables: MeshTables) -> float:
    """Return the time of running the graphs that the tables leave out."""
    return tables.graph.runs * tables.device.step_overhead_s
