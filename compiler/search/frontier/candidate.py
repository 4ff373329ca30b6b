"""A candidate of the search: one mesh of one alternative, with its tables, runs and bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tensoropt.compiler.layout.mesh import count_layouts, wide_axes
from tensoropt.compiler.program.evaluate import ProgramCost
from tensoropt.compiler.search.engine.ft import elimination_sums
from tensoropt.compiler.search.engine.relaxation import relax
from tensoropt.compiler.search.frontier.ascents import Ascents, turn_sums
from tensoropt.compiler.search.frontier.bounds import NOTHING, Claim, proven
from tensoropt.compiler.search.frontier.lessons import Lessons, overhead_s, shortfalls
from tensoropt.compiler.search.frontier.options import PLACEMENTS, SHALLOW_AXES, SearchOptions
from tensoropt.compiler.search.problem.cost_tables import Assignment
from tensoropt.compiler.search.problem.problem import (
    NO_LINES,
    Lines,
    TableFrontier,
    TablePoint,
)
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.search.problem.waiting import Waits
from tensoropt.compiler.training.alternatives import INFERENCE, Alternative
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["Candidate", "Costed", "Programs", "spread"]

Costed = tuple["Candidate", Assignment, ProgramCost]
"""A plan of a candidate, with the cost of its program before fusion and overlap."""

Programs = Sequence[tuple[float, float]]
"""Seconds and bytes of programs."""

LARGE = 10_000
"""Nodes of a program above which fewer points are costed, and from which tables learn nothing.

Ablation: large.
"""


@dataclass(eq=False)
class Candidate:
    """One mesh of one alternative.

    ``tolerance`` is the bound of its next run, ``rounds`` the number of runs at it, and ``run_s``
    the time of its last run with tables and costs. A candidate is ``closed`` when no run would
    improve its bound; it is left out for ``reason`` if it has no points. It ``is_too_wide`` to
    learn from programs, or ``is_unsolvable`` except by lines, if its tables exceed the memory.
    """

    mesh: Mesh
    make_tables: Callable[[], MeshTables]
    alternative: Alternative = INFERENCE
    number: int = 0
    results: list[TableFrontier] = field(default_factory=list)
    lines: list[Lines] = field(default_factory=list)
    tolerance: float = 0.0
    rounds: int = 0
    run_s: float = 0.0
    first_run_s: float = 0.0
    left_bytes: float = 0.0
    closed: bool = False
    reason: str | None = None
    error: Exception | None = None
    lessons: Lessons | None = None
    is_too_wide: bool = False
    is_unsolvable: bool = False
    ascents: Ascents | None = None
    has_refined: bool = False

    @property
    def is_fresh(self) -> bool:
        """True until a run has been tried."""
        return not self.results and self.reason is None

    @property
    def is_searched(self) -> bool:
        """True once points or lines of it are known."""
        return bool(self.results or self.ascents is not None)

    @cached_property
    def is_wide(self) -> bool:
        """True if a turn of messages takes fewer sums than one exact elimination."""
        problem = self.tables.build()
        return turn_sums(problem) < elimination_sums(problem)

    @property
    def axes(self) -> int:
        """Number of mesh axes above 1."""
        return wide_axes(self.mesh)

    @property
    def is_deep(self) -> bool:
        """True for a mesh that is begun after all meshes of fewer axes."""
        return self.axes > SHALLOW_AXES

    @property
    def layouts(self) -> int:
        """The number of layouts of a tensor.

        First runs of seven large models on 2x2x2 take 4 to 8 times those on 2x4, which has a fifth
        of the layouts.
        """
        return count_layouts(self.mesh, PLACEMENTS)

    def leave_out(self, reason: str, error: Exception | None = None) -> None:
        """Note why the search leaves it out, unless it has been searched."""
        if self.is_fresh and self.ascents is None:
            self.reason, self.error = reason, error

    def begin_ascents(self, take: Callable[[Candidate, TablePoint], tuple[float, float]]) -> None:
        """Bound the ends of its frontier by lines; ``take`` gets the plans of all its ascents.

        Memory is by the tables at first, which takes less time, but by programs after a run.
        """
        problem, more_s = self.tables.build(), overhead_s(self.tables)

        def take_choice(choice: Assignment) -> tuple[float, float] | None:
            point = problem.cost(choice)
            if math.isinf(point.time):
                return None
            time_s, size = take(self, point)
            return max(time_s - more_s, NOTHING), max(size, 1.0)

        self.has_refined = bool(self.results)
        self.ascents = Ascents(relax(self.tables, self._waits), take_choice)
        least_s = sum(float(node.time_s.min()) for node in problem.nodes)
        self.ascents.bound_ends(max(least_s, NOTHING))

    @property
    def can_refine_ascents(self) -> bool:
        """True if lines about the memory of programs can follow those about tables."""
        return not self.has_refined and self.known.cuts is not None

    def refine_ascents(self) -> None:
        """Go on with lines about the memory of programs."""
        assert self.ascents is not None
        self.has_refined = True
        self.ascents = self.ascents.continue_on(relax(self.tables, self._waits))

    @property
    def _waits(self) -> Waits | None:
        cuts = self.known.cuts
        return cuts.sums.waits if self.has_refined and cuts is not None else None

    def note_run(self, took_s: float) -> None:
        """Note the time of a run, which lengthens the run that it continues."""
        continues = bool(self.results) and self.is_above_tolerance
        self.run_s = max(took_s, self.run_s if continues else 0.0)
        self.first_run_s = self.first_run_s or took_s

    @property
    def is_above_tolerance(self) -> bool:
        """True if the bound of its last run is above its tolerance, as if the clock ended it."""
        return self.results[-1].epsilon > self.tolerance

    @property
    def known(self) -> Lessons:
        """The lessons of its tables, which are built on first use."""
        if self.lessons is None:
            self.lessons = Lessons(self.make_tables())
        return self.lessons

    @property
    def tables(self) -> MeshTables:
        return self.known.tables

    @property
    def proven_lines(self) -> Lines:
        """The lines that hold for every plan of the candidate."""
        ascended = NO_LINES if self.ascents is None else self.ascents.lines
        return np.concatenate([ascended, *self.lines])

    def forget_tables(self) -> None:
        """Free the tables of edges; they are built again on the next run."""
        if self.lessons is not None:
            self.tables.forget_edges()

    def learns(self) -> bool:
        """Return whether programs may refine the tables: these charge at most what programs cost.

        Tables that became too wide by it learn nothing more.
        """
        small = len(self.tables.graph.nodes) <= LARGE
        return self.known.cuts is not None and small and not self.is_too_wide

    def points(
        self, options: SearchOptions, result: TableFrontier | None = None
    ) -> list[TablePoint]:
        """Return the points of a result, the last by default, that are costed as programs.

        They are a spread over the frontier, and the points around the memory limit.
        """
        result = self.results[-1] if result is None else result
        # The time to cost a program is linear in its nodes.
        nodes = max(len(self.tables.graph.nodes), 1)
        kept = spread(
            len(result.points), max(2, min(options.points, LARGE * options.points // nodes))
        )
        memories = [point.memory for point in result.points]
        if options.memory_bytes is not None and options.may_exceed(max(memories, default=0.0)):
            kept |= _around(memories, options.memory_bytes)
        return [result.points[i] for i in sorted(kept)]

    def gap(self, known: Programs, options: SearchOptions) -> float | None:
        """Return the largest excess of the best of ``known`` over any plan of this candidate.

        The gap is relative, and ``None`` if nothing is proven. For tables that do not learn it is
        about costs by tables, and ``known`` has these costs.
        """
        if not self.is_searched:
            return math.inf
        claims = [
            Claim(self.points(options, found), found.epsilon)
            for found in self.results
            if math.isfinite(found.epsilon)
        ]
        gap = proven(known, claims, self.proven_lines, overhead_s(self.tables))
        if gap is None and not self.results:
            return math.inf
        if self.tables.learns:
            return gap
        bounds = [claim.epsilon for claim in claims]
        return min(bounds if gap is None else [gap, *bounds], default=None)

    def short_points(
        self, programs: Programs, options: SearchOptions, tolerance: float
    ) -> Iterator[TablePoint]:
        """Yield the last points that no program matches within ``1 + tolerance``."""
        points = self.points(options)
        factors = shortfalls(points, programs, overhead_s(self.tables)).tolist()
        for point, factor in zip(points, factors, strict=True):
            if factor > 1 + tolerance:
                yield point


def spread(count: int, wanted: int) -> set[int]:
    """Return at most ``wanted`` of ``count`` positions at equal distances, with both ends."""
    if count <= wanted:
        return set(range(count))
    return {round(i * (count - 1) / (wanted - 1)) for i in range(wanted)}


def _around(memories: Sequence[float], limit: float, reach: int = 16) -> set[int]:
    """Return the positions next to the place where the falling ``memories`` pass ``limit``."""
    first = next((i for i, memory in enumerate(memories) if memory <= limit), len(memories))
    return set(range(max(first - reach, 0), min(first + reach, len(memories))))
