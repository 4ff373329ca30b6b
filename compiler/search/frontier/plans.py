"""The plans that a search has found on all meshes, costed as programs."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator

from tensoropt.compiler.search.frontier.candidate import Candidate, Costed, Programs
from tensoropt.compiler.search.frontier.lessons import overhead_s
from tensoropt.compiler.search.frontier.options import SearchOptions

__all__ = ["Plans"]

BY_FAR = 0.7
"""Least memory of a program that does not learn, in the memory of its point by the tables.

Measured by ``bench/accuracy/plan_memory.py``.
"""


class Plans:
    """The costs of plans, each of a candidate.

    ``costed`` has the programs of all points, ``charged`` their seconds and bytes by tables, or by
    programs if their tables learn.
    """

    def __init__(self, options: SearchOptions) -> None:
        self.options = options
        self.costed: list[Costed] = []
        self.charged: list[tuple[float, float]] = []

    @property
    def programs(self) -> Programs:
        """The seconds and bytes of all costed programs."""
        return [(cost.time_s, float(cost.memory_bytes)) for _, _, cost in self.costed]

    def known_to(self, candidate: Candidate) -> Programs:
        """Return the seconds and bytes of all plans, in the costs that its bound is about."""
        return self.programs if candidate.tables.learns else self.charged

    def gap(self, candidate: Candidate) -> float | None:
        """Return the largest excess of the best plan over any plan of a candidate."""
        return candidate.gap(self.known_to(candidate), self.options)

    @property
    def is_enough(self) -> bool:
        """True if a plan needs no more memory than the search asks for."""
        enough = self.options.enough_bytes
        return enough is not None and any(c.memory_bytes <= enough for _, _, c in self.costed)

    def cost(self, candidate: Candidate, last_s: float | None) -> None:
        """Cost the points of the last run as programs, the ends of the frontier first, in time.

        Points that another program beats are left out.
        """
        points = candidate.points(self.options)
        end = math.inf if last_s is None else time.monotonic() + last_s
        # Tables that do not learn may charge more memory than a program needs.
        learns = self.options.solve is None and candidate.tables.learns
        least, programs = 1.0 if learns else BY_FAR, [*self.programs]
        for number, at in enumerate(_ends_first(len(points))):
            point = points[at]
            if number >= 2 and time.monotonic() > end:
                break
            if any(t <= point.time and size <= least * point.memory for t, size in programs):
                continue
            assignment = candidate.tables.decode(point.assignment)
            cost, is_new = candidate.known.cost(assignment)
            if is_new:
                own = cost.time_s, float(cost.memory_bytes)
                by_tables = point.time + overhead_s(candidate.tables), point.memory
                self.costed.append((candidate, assignment, cost))
                self.charged.append(own if learns else by_tables)
                programs.append(own)


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
