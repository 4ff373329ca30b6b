"""The turns of candidates: the worst bound is next, with a part of the time left."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensoropt.compiler.search.engine.control import OutOfTimeError
from tensoropt.compiler.search.frontier.candidate import Candidate
from tensoropt.compiler.search.frontier.clock import Clock
from tensoropt.compiler.search.frontier.plans import Plans

__all__ = ["LADDER", "LATE", "Turns"]

DEEPER_GAP = 0.03
"""Gap of all searched candidates at which deeper meshes are begun. Ablation: deeper-later."""
LADDER = (0.05, 0.02, 0.01)
"""Tolerances on the way to the requested bound. Ablation: tolerances."""
FINEST = 0.005
"""Tolerance below which tables are not searched again for the sake of programs. Ablation: finer."""
SLICE = 0.25
"""Least part of the time left that a run may use. Ablation: slices."""
WORTH = 0.3
"""Part of the time of its last run that a candidate needs for another run. Ablation: worth."""
ROUNDS = 5
"""Largest number of runs of a candidate at one tolerance. Ablation: rounds."""
SMALL_ROUNDS = 400
"""The same for small problems at the requested bound: their points converge to programs.

Ablation: small-rounds.
"""
LATE = "no time was left; expected more --search-time"


class Turns:
    """Chooses the candidate of each run, and the tolerance of its next run.

    ``candidates`` are in the order of their promise.
    """

    def __init__(self, candidates: Sequence[Candidate], plans: Plans, clock: Clock) -> None:
        self.candidates, self.plans, self.clock = candidates, plans, clock
        self.options = options = plans.options
        order = [*dict.fromkeys(candidate.alternative for candidate in candidates)]
        self._leaner = {way: place for place, way in enumerate([*order[1:], *order[:1]])}
        for number, candidate in enumerate(candidates, 1):
            candidate.number = number
            candidate.tolerance = max(options.epsilon, LADDER[0])  # coarse: other runs follow

    def next(self) -> tuple[Candidate, float] | None:
        """Return the candidate to run next and its part of the time left, ``None`` to end.

        The worst gap is first. A shallow mesh has an even part of the time left, at least
        ``SLICE``. A deep mesh has all of it, and so has a candidate that was cut short: parts of
        their runs prove little. Candidates that are not begun in time are left out.
        """
        open_ = [c for c in self.candidates if not c.closed and c.reason is None]
        urgencies = {candidate: self._urgency(candidate) for candidate in open_}
        urgent = [c for c in open_ if urgencies[c] > self.options.epsilon]
        worth = [candidate for candidate in urgent if self._is_worth(candidate)]
        if not worth:
            for candidate in open_:
                candidate.leave_out(LATE, OutOfTimeError("time is over"))
            return None
        self._sort_by_memory(worth)
        worst = max(worth, key=urgencies.__getitem__)  # the most promising of equals
        rivals = sum(not candidate.is_deep for candidate in urgent)
        whole = worst.is_deep or (worst.results and worst.is_above_tolerance)
        return worst, 1.0 if whole else max(SLICE, 1 / rivals)

    def _sort_by_memory(self, candidates: list[Candidate]) -> None:
        """Move alternatives forward that may fit the memory, once the first one does not.

        Until a plan fits, the leanest alternative is first. Then every mesh in its turn has all of
        them, and those that have not fitted so far are last. Ablation: leaner-first.
        """
        limit = self.options.memory_bytes
        costed = zip(self.plans.costed, self.plans.programs, strict=True)
        sizes = [(candidate.alternative, size) for (candidate, _, _), (_, size) in costed]
        fitting = {alternative for alternative, size in sizes if limit is None or size <= limit}
        overfull = {alternative for alternative, _ in sizes} - fitting
        if overfull and not fitting:
            candidates.sort(key=lambda candidate: self._leaner[candidate.alternative])
        else:
            candidates.sort(key=lambda candidate: candidate.alternative in overfull)

    def _urgency(self, candidate: Candidate) -> float:
        """Return the gap of a candidate; a stand-in for a fresh one on a deeper mesh."""
        if candidate.is_searched:
            return self.plans.gap(candidate) or 0.0
        if not candidate.is_deep or not self.plans.costed:
            return math.inf
        return max(DEEPER_GAP, math.nextafter(self.options.epsilon, math.inf))

    def _is_worth(self, candidate: Candidate) -> bool:
        """Return whether the time left may improve a candidate."""
        if self.options.must_answer and not self.plans.costed:
            return True
        left_s = self.clock.left_s
        if candidate.results:
            return left_s > candidate.run_s * WORTH
        return left_s > (self._expected_s(candidate) if candidate.is_deep else 0)

    def _expected_s(self, candidate: Candidate) -> float:
        """Return the expected time of the first run of a candidate.

        It grows with the layouts of a tensor.
        """
        searched = (c for c in self.candidates if c.results)
        times_s = sorted(c.first_run_s * candidate.layouts / c.layouts for c in searched)
        return times_s[len(times_s) // 2] if times_s else 0.0

    def plan_next(self, candidate: Candidate) -> None:
        """Choose the tolerance of the next run, or close the candidate.

        Programs that need more memory than the tables charge refine the tables first.
        """
        asked, tolerance = self.options.epsilon, candidate.tolerance
        gap = self.plans.gap(candidate)
        if not candidate.results:
            if gap is not None and gap <= tolerance:
                self._lower_tolerance(candidate)
        elif self.options.solve is not None or gap is None:
            candidate.closed = True
        elif self._refines(candidate):
            return
        elif candidate.is_above_tolerance:
            # The clock cut the run short, and the next one starts from its lines.
            candidate.closed = self.clock.limit_s is None or candidate.results[-1].short_of_memory
        elif tolerance > asked:
            self._lower_tolerance(candidate)
        elif candidate.learns() and gap > asked > 0 and tolerance > FINEST:
            candidate.tolerance, candidate.rounds = max(tolerance / 2, FINEST), 0
        else:
            candidate.closed = True

    def _lower_tolerance(self, candidate: Candidate) -> None:
        lower = max((rung for rung in LADDER if rung < candidate.tolerance), default=0.0)
        candidate.tolerance, candidate.rounds = max(lower, self.options.epsilon), 0

    def _refines(self, candidate: Candidate) -> bool:
        """Return whether the last points taught the tables of a candidate something."""
        if not candidate.learns():
            return False
        is_small, asked = candidate.tables.is_small, self.options.epsilon
        converges = is_small and candidate.tolerance <= asked
        candidate.rounds += 1
        if candidate.rounds > (SMALL_ROUNDS if converges else ROUNDS):
            return False
        if not is_small and self.clock.limit_s is None and candidate.tolerance == 0:
            return False  # an exact search is not repeated: it would take twice as long
        short = candidate.short_points(self.plans.programs, self.options, candidate.tolerance)
        return candidate.known.learn(list(short))
