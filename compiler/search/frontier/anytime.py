"""The anytime loop of the search: one queue of candidates, one clock.

The loop always runs the candidate with the worst certified gap. Every run searches the tables of a
candidate within its tolerance, costs the points as programs, and then either refines the tables
where programs need more memory than they charge, or lowers the tolerance. Meshes of one and two
axes come first: they contain most good plans, and their tables are small.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property

from tensoropt.compiler.layout.mesh import count_layouts
from tensoropt.compiler.program.pins import PinsError
from tensoropt.compiler.search.engine.control import Control, OutOfTimeError, Status, alarm
from tensoropt.compiler.search.engine.ft import solve_frontier
from tensoropt.compiler.search.frontier.candidate import Candidate, Costed, Programs
from tensoropt.compiler.search.frontier.clock import Clock
from tensoropt.compiler.search.frontier.lessons import overhead_s
from tensoropt.compiler.search.frontier.options import (
    PLACEMENTS,
    SHALLOW_AXES,
    Say,
    SearchOptions,
    Stop,
)
from tensoropt.compiler.search.problem.problem import (
    DoesNotFitError,
    NothingAllowedError,
    Problem,
    TableFrontier,
)
from tensoropt.compiler.search.problem.table_size import TablesTooLargeError, check_tables
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["Anytime"]

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
BY_FAR = 0.7
"""Least memory of a program that does not learn, in the memory of its point by the tables.

Measured by ``bench/accuracy/plan_memory.py``.
"""
GRACE_S = 1.0
"""Time for the first points of a candidate after Ctrl-C, if another candidate has points."""
_LATE = "no time was left; expected more --search-time"


class Anytime:
    """Searches ``candidates``, which are in the order of their promise.

    ``costed`` has the programs of all points, ``charged`` their seconds and bytes by tables, or by
    programs if their tables learn. A candidate without points has a ``reason``.
    """

    def __init__(self, candidates: Sequence[Candidate], options: SearchOptions, say: Say) -> None:
        self.candidates, self.options, self.say = candidates, options, say
        self.clock = Clock(options.time_limit_s, options.processor_s)
        self.costed: list[Costed] = []
        self.charged: list[tuple[float, float]] = []
        self.interrupted = False
        self._is_stopping = False  # Ctrl-C came, and the method is about to return
        for number, candidate in enumerate(candidates, 1):
            candidate.number = number
            candidate.tolerance = max(options.epsilon, LADDER[0])  # coarse: other runs follow

    def run(self) -> None:
        """Improve the worst candidate until the bound is reached or the time is over.

        Raises KeyboardInterrupt on Ctrl-C unless it may return and a candidate has points. The
        alternatives of a mesh share tables, which are freed when another mesh is next.
        """
        mesh: Mesh | None = None
        while (turn := self._next_turn()) is not None:
            candidate, share = turn
            if mesh is not None and candidate.mesh != mesh:
                for other in self.candidates:
                    if other.mesh == mesh:
                        other.forget_tables()
            mesh = candidate.mesh
            self._improve(candidate, share)

    @property
    def searched(self) -> list[Candidate]:
        """The candidates with points."""
        return [candidate for candidate in self.candidates if candidate.results]

    @property
    def programs(self) -> Programs:
        """The seconds and bytes of all costed programs."""
        return [(cost.time_s, float(cost.memory_bytes)) for _, _, cost in self.costed]

    @cached_property
    def gaps(self) -> list[float | None]:
        """The final gap of each searched candidate."""
        return [self._gap(candidate) for candidate in self.searched]

    @property
    def stopped(self) -> Stop | None:
        """The cause that ended the search before its bound, ``None`` if the bound was reached."""
        if any(candidate.results[-1].short_of_memory for candidate in self.searched):
            return "memory"
        is_open = any(gap is not None and gap > self.options.epsilon for gap in self.gaps)
        late = any(isinstance(c.error, OutOfTimeError) for c in self.candidates)
        unfinished = self.clock.limit_s is not None and not all(c.closed for c in self.searched)
        if late or (is_open and unfinished):
            return "time"
        return "tables" if is_open else None

    def failure(self) -> Exception:
        """Return the error that explains why no candidate has a point."""
        refused = [(c.mesh, c.error) for c in self.candidates if c.error is not None]
        mesh, error = min(refused, key=lambda pair: _rank(pair[1]))
        if isinstance(error, OutOfTimeError):
            return UserError(
                f"--search-time: expected more seconds, got: {self.options.time_limit_s:g}, "
                "in which not even the fastest and the leanest plan were found"
            )
        if len(self.candidates) == 1 or isinstance(error, DoesNotFitError | NothingAllowedError):
            return error
        if len({str(error) for _, error in refused}) == 1 and isinstance(error, PinsError):
            return error
        others = len(refused) - 1
        more = f" and {others} other{'s' if others > 1 else ''}" if others else ""
        return UserError(f"{str(error) or 'out of memory'} (mesh {mesh}{more})")

    def _gap(self, candidate: Candidate) -> float | None:
        return candidate.gap(self._known_to(candidate), self.options)

    def _known_to(self, candidate: Candidate) -> Programs:
        """Return the seconds and bytes of all known plans, in the costs that its bound is about."""
        return self.programs if candidate.tables.learns else self.charged

    def _next_turn(self) -> tuple[Candidate, float] | None:
        """Return the candidate to run next and its part of the time left, ``None`` to end.

        The worst gap is first. A shallow mesh has an even part of the time left, at least
        ``SLICE``. A deep mesh has all of it, and so has a candidate that was cut short: parts of
        their runs prove little. Candidates that are not begun in time are left out.
        """
        open_ = [c for c in self.candidates if not c.closed and c.reason is None]
        if self._has_enough():
            return None
        if self.interrupted:
            self._leave_out(open_, "interrupted")
            return None
        urgencies = {candidate: self._urgency(candidate) for candidate in open_}
        urgent = [c for c in open_ if urgencies[c] > self.options.epsilon]
        worth = [candidate for candidate in urgent if self._is_worth(candidate)]
        if not worth:
            self._leave_out(open_, _LATE, OutOfTimeError("time is over"))
            return None
        worst = max(worth, key=urgencies.__getitem__)  # the most promising of equals
        rivals = sum(not self._is_deep(candidate) for candidate in urgent)
        whole = self._is_deep(worst) or (worst.results and worst.is_above_tolerance)
        return worst, 1.0 if whole else max(SLICE, 1 / rivals)

    def _urgency(self, candidate: Candidate) -> float:
        """Return the gap of a candidate; a stand-in for a fresh one on a deeper mesh."""
        if candidate.results:
            return self._gap(candidate) or 0.0
        if not self._is_deep(candidate) or not self.costed:
            return math.inf
        return max(DEEPER_GAP, math.nextafter(self.options.epsilon, math.inf))

    def _is_worth(self, candidate: Candidate) -> bool:
        """Return whether the time left may improve a candidate."""
        if self.options.must_answer and not self.costed:
            return True
        left_s = self.clock.left_s
        if candidate.results:
            return left_s > candidate.run_s * (1.0 if candidate.is_above_tolerance else WORTH)
        return left_s > (self._expected_s(candidate) if self._is_deep(candidate) else 0)

    def _expected_s(self, candidate: Candidate) -> float:
        """Return the expected time of the first run of a candidate.

        It grows with the cells of the tables, the square of the number of layouts of a tensor.
        """
        cells = _cells(candidate)
        known = [c.first_run_s * cells / _cells(c) for c in self.searched]
        return sorted(known)[len(known) // 2] if known else 0.0

    @staticmethod
    def _is_deep(candidate: Candidate) -> bool:
        return candidate.axes > SHALLOW_AXES

    def _has_enough(self) -> bool:
        enough = self.options.enough_bytes
        return enough is not None and any(c.memory_bytes <= enough for _, _, c in self.costed)

    def _leave_out(
        self, candidates: Sequence[Candidate], reason: str, error: Exception | None = None
    ) -> None:
        for candidate in candidates:
            if candidate.is_fresh:
                candidate.reason, candidate.error = reason, error

    def _improve(self, candidate: Candidate, share: float) -> None:
        """Run a candidate once and plan its next run; note why it has no points if it fails."""
        try:
            self._run(candidate, share)
            self._plan_next(candidate)
        except KeyboardInterrupt:
            again = self.interrupted or self._is_stopping
            if again or not self.costed or self.options.on_interrupt == "raise":
                raise
            self.interrupted = True
            self._leave_out([candidate], "interrupted")
        except OutOfTimeError as error:
            # The run may end in time once other candidates have used less than their slices.
            candidate.run_s = max(candidate.run_s, self.clock.left_s)
            self._leave_out([candidate], _LATE, error)
        except (UserError, MemoryError) as error:
            if candidate.lessons is not None and len(candidate.lessons):
                # Lessons couple nodes, and the tables may become too wide.
                candidate.lessons.forget()
                candidate.is_too_wide = True
            else:
                candidate.closed = True
                if not any(owner is candidate for owner, _, _ in self.costed):
                    candidate.results.clear()  # no point of it can be costed
                self._leave_out([candidate], str(error) or "out of memory", error)

    def _run(self, candidate: Candidate, share: float) -> None:
        """Search the tables of a candidate within its tolerance, and cost its points.

        ``share`` is of the time that is left once there are tables, which cannot be cut short.
        """
        started, used, tell = time.monotonic(), time.process_time(), self._teller(candidate)
        if candidate.is_fresh:
            tell("tables")
        with alarm(self._given_up):
            if candidate.is_fresh:
                too_large = [
                    c.mesh for c in self.candidates if isinstance(c.error, TablesTooLargeError)
                ]
                allowed = self.options.search_memory_bytes
                candidate.left_bytes = check_tables(candidate.tables, too_large, allowed)
            problem = candidate.known.problem
        result = self._solve(candidate, problem, share * self.clock.left_s, tell)
        self.interrupted |= result.interrupted
        candidate.results.append(result)
        candidate.lines.append(result.lines)
        self._cost(candidate)
        # On a busy machine a run takes longer than its share of the time for the processor.
        took_s = min(time.monotonic() - started, time.process_time() - used)
        candidate.run_s = max(took_s, candidate.run_s if candidate.is_above_tolerance else 0.0)
        candidate.first_run_s = candidate.first_run_s or took_s

    def _plan_next(self, candidate: Candidate) -> None:
        """Choose the tolerance of the next run, or close the candidate.

        Programs that need more memory than the tables charge refine the tables first.
        """
        asked, found, tolerance = self.options.epsilon, candidate.results[-1], candidate.tolerance
        gap = self._gap(candidate)
        if self.options.solve is not None or gap is None:
            candidate.closed = True
        elif self._refines(candidate):
            return
        elif candidate.is_above_tolerance:
            # The clock cut the run short, and the next one starts from its lines.
            candidate.closed = self.clock.limit_s is None or found.short_of_memory
        elif tolerance > asked:
            lower = max((rung for rung in LADDER if rung < tolerance), default=0.0)
            candidate.tolerance, candidate.rounds = max(lower, asked), 0
        elif candidate.learns() and gap > asked > 0 and tolerance > FINEST:
            candidate.tolerance, candidate.rounds = max(tolerance / 2, FINEST), 0
        else:
            candidate.closed = True

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
        short = candidate.short_points(self.programs, self.options, candidate.tolerance)
        return candidate.known.learn(list(short))

    @property
    def _given_up(self) -> float | None:
        """Time of the monotonic clock at which even the first points are given up."""
        last_s = self._last_s
        return None if last_s is None else time.monotonic() + last_s

    @property
    def _last_s(self) -> float | None:
        return None if self.options.must_answer and not self.costed else self.clock.last_s

    def _solve(
        self, candidate: Candidate, problem: Problem, left_s: float, tell: Say
    ) -> TableFrontier:
        """Return points of the tables of a candidate, found in ``left_s`` seconds."""
        limit_s = None if math.isinf(left_s) else max(0.0, left_s)
        if self.options.solve is not None:
            return self.options.solve(candidate.tables, limit_s)

        def watch(status: Status) -> None:
            self._is_stopping = status.stopping
            tell(str(status))

        options, grace_s = self.options, GRACE_S if self.costed else math.inf
        control = Control(self._last_s, options.on_interrupt, grace_s, watch)
        more_s = overhead_s(candidate.tables)
        known = [(max(time_s - more_s, 0.0), size) for time_s, size in self._known_to(candidate)]
        return solve_frontier(
            problem,
            epsilon=candidate.tolerance,
            time_limit_s=limit_s,
            control=control,
            known=known,
            lines=candidate.proven_lines,
            memory_bytes=candidate.left_bytes,
        )

    def _teller(self, candidate: Candidate) -> Say:
        count = len(self.candidates)
        several = len({c.alternative for c in self.candidates}) > 1
        where = f"recompute {candidate.alternative}, " if several else ""
        where += f"mesh {candidate.mesh}"
        where += f" ({candidate.number} of {count})" if count > 1 else ""
        return lambda what: self.say(f"{where}: {what}, {self.clock.past_s:.1f} s")

    def _cost(self, candidate: Candidate) -> None:
        """Cost the points of the last run as programs, the ends of the frontier first, in time.

        Points that another program beats are left out.
        """
        points, last_s = candidate.points(self.options), self.clock.last_s
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


def _cells(candidate: Candidate) -> int:
    """Return a measure of the cells of a table of a candidate."""
    layouts = count_layouts(candidate.mesh, PLACEMENTS)
    return layouts * layouts


def _rank(error: Exception) -> int:
    """Return the rank of an error to show: the errors that memory or time would mend are first."""
    return (
        0 if isinstance(error, DoesNotFitError) else 1 if isinstance(error, OutOfTimeError) else 2
    )


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
