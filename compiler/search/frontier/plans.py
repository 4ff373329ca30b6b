"""The plans that a search has found on all meshes, costed as programs."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator

from tensoropt.compiler.search.frontier.ascents import Corner
from tensoropt.compiler.search.frontier.bounds import NOTHING, corners
from tensoropt.compiler.search.frontier.candidate import Candidate, Costed, Programs
from tensoropt.compiler.search.frontier.lessons import overhead_s
from tensoropt.compiler.search.frontier.options import SearchOptions
from tensoropt.compiler.search.frontier.sketch import sketch
from tensoropt.compiler.search.problem.problem import TablePoint

__all__ = ["Plans"]

BY_FAR = 0.7
"""Least memory of a program that does not learn, in the memory of its point by the tables.

Measured by ``bench/accuracy/plan_memory.py``.
"""


class Plans:
    """The costs of plans, each of a candidate.

    ``costed`` has the programs of all points, ``programs`` their seconds and bytes. ``charged`` has
    these by tables, or by programs if their tables learn. Bytes are of processes.
    """

    def __init__(self, options: SearchOptions) -> None:
        self.options = options
        self.costed: list[Costed] = []
        self.programs: list[tuple[float, float]] = []
        self.charged: list[tuple[float, float]] = []
        self._sketch = 0, ""

    def known_to(self, candidate: Candidate) -> Programs:
        """Return the seconds and bytes of all plans, in the costs that its bound is about."""
        return self.programs if candidate.tables.learns else self.charged

    def gap(self, candidate: Candidate) -> float | None:
        """Return the largest excess of the best plan over any plan of a candidate."""
        return candidate.gap(self.known_to(candidate), self.options)

    def corners(self, candidate: Candidate) -> list[Corner]:
        """Return the limits of time and memory of plans of a candidate that no plan beats.

        Times are by the tables, without overheads.
        """
        more_s = overhead_s(candidate.tables)
        limits = zip(*corners(self.known_to(candidate)), strict=True)
        return [(max(time_s - more_s, NOTHING), max(size, 1.0)) for time_s, size in limits]

    def time_bound(self, candidate: Candidate) -> float | None:
        """Return how much longer than its least time the fastest plan may take, if known."""
        more_s, known = overhead_s(candidate.tables), self.known_to(candidate)
        bounds = [candidate.results[-1].time_bound] if candidate.results else []
        lines = candidate.proven_lines
        least_s = [least / a for a, b, least in lines.tolist() if a > 0 and b == 0 and least > 0]
        if least_s and known:
            fastest_s = min(time_s for time_s, _ in known)
            bounds.append(max(fastest_s / (max(least_s) + more_s) - 1, 0.0))
        return min((bound for bound in bounds if bound is not None), default=None)

    def sketch(self) -> str:
        """Return a table of the best plans, for a terminal; made once per plan."""
        if self._sketch[0] != len(self.costed):
            self._sketch = len(self.costed), sketch(self.costed, self.programs)
        return self._sketch[1]

    @property
    def is_enough(self) -> bool:
        """True if a plan needs no more memory than the search asks for."""
        enough = self.options.enough_bytes
        return enough is not None and any(size <= enough for _, size in self.programs)

    def take(self, candidate: Candidate, point: TablePoint) -> tuple[float, float]:
        """Cost the program of a point; return its seconds and bytes in the costs of the bound.

        A plan is not kept if others beat it both as a program and in the costs of the bound.
        """
        assignment = candidate.tables.decode(point.assignment)
        cost, is_new = candidate.known.cost(assignment)
        program = cost.time_s, float(cost.memory_bytes + candidate.tables.rest_bytes)
        by_tables = point.time + overhead_s(candidate.tables), point.memory
        charged = program if self._learns(candidate) else by_tables
        if is_new and not (_beats(self.programs, program) and _beats(self.charged, charged)):
            self.costed.append((candidate, assignment, cost))
            self.programs.append(program)
            self.charged.append(charged)
        return charged

    def _learns(self, candidate: Candidate) -> bool:
        return self.options.solve is None and candidate.tables.learns

    def cost(self, candidate: Candidate, last_s: float | None) -> None:
        """Cost the points of the last run as programs, the ends of the frontier first, in time.

        Points that another program beats are left out.
        """
        points = candidate.points(self.options)
        end = math.inf if last_s is None else time.monotonic() + last_s
        # Tables that do not learn may charge more memory than a program needs.
        least = 1.0 if self._learns(candidate) else BY_FAR
        for number, at in enumerate(_ends_first(len(points))):
            point = points[at]
            if number >= 2 and time.monotonic() > end:
                break
            if not _beats(self.programs, (point.time, least * point.memory)):
                self.take(candidate, point)


def _beats(plans: Programs, plan: tuple[float, float]) -> bool:
    return any(time_s <= plan[0] and size <= plan[1] for time_s, size in plans)


def _ends_first(count: int) -> Iterator[int]:
    """Yield every position below ``count``: both ends, then the middles of the rest."""
    yield from range(count)[:: max(count - 1, 1)]
    spans = deque([(0, count - 1)])
    while spans:
        low, high = spans.popleft()
        if high - low > 1:
            middle = (low + high) // 2
            yield middle
            spans += [(low, middle), (middle, high)]
