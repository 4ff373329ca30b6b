"""The anytime loop of the search: one queue of candidates, one clock.

The loop always runs the candidate with the worst certified gap. Every run searches the tables of a
candidate within its tolerance, costs the points as programs, and then either refines the tables
where programs need more memory than they charge, or lowers the tolerance. Meshes of one and two
axes come first: they contain most good plans, and their tables are small.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import cached_property

from tensoropt.compiler.program.pins import PinsError
from tensoropt.compiler.search.engine.conditioned import TooWideError
from tensoropt.compiler.search.engine.control import Control, OutOfTimeError, Status, alarm
from tensoropt.compiler.search.engine.ft import solve_frontier
from tensoropt.compiler.search.frontier.ascents import Ascents, Corner
from tensoropt.compiler.search.frontier.candidate import Candidate
from tensoropt.compiler.search.frontier.clock import Clock
from tensoropt.compiler.search.frontier.lessons import overhead_s
from tensoropt.compiler.search.frontier.options import Say, SearchOptions, Stop
from tensoropt.compiler.search.frontier.plans import Plans
from tensoropt.compiler.search.frontier.turns import LADDER, LATE, Turns
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

GRACE_S = 1.0
"""Time for the first points of a candidate after Ctrl-C, if another candidate has points."""


FAR = 0.05
"""Gap of programs to tables above which lines follow a run. Ablation: far-programs."""


class Anytime:
    """Searches ``candidates``, which are in the order of their promise.

    A candidate without points has a ``reason``.
    """

    def __init__(self, candidates: Sequence[Candidate], options: SearchOptions, say: Say) -> None:
        self.candidates, self.options, self.say = candidates, options, say
        self.clock = Clock(options.time_limit_s, options.processor_s)
        self.plans = Plans(options)
        self.turns = Turns(candidates, self.plans, self.clock)
        self.interrupted = False
        self._is_stopping = False  # Ctrl-C came, and the method is about to return

    def run(self) -> None:
        """Improve the worst candidate until the bound is reached or the time is over.

        Raises KeyboardInterrupt on Ctrl-C unless it may return and a candidate has points. The
        alternatives of a mesh share tables, which are freed when another mesh is next.
        """
        mesh: Mesh | None = None
        while not self.plans.is_enough and not self.interrupted and (turn := self.turns.next()):
            candidate, share = turn
            if mesh is not None and candidate.mesh != mesh:
                for other in self.candidates:
                    if other.mesh == mesh:
                        other.forget_tables()
            mesh = candidate.mesh
            self._improve(candidate, share)
        if self.interrupted and not self.plans.is_enough:
            for candidate in self.candidates:
                candidate.leave_out("interrupted")

    @property
    def searched(self) -> list[Candidate]:
        """The candidates with points or lines."""
        return [candidate for candidate in self.candidates if candidate.is_searched]

    @cached_property
    def gaps(self) -> list[float | None]:
        """The final gap of each searched candidate; None if nothing is proved."""
        gaps = [self.plans.gap(candidate) for candidate in self.searched]
        return [None if gap is None or math.isinf(gap) else gap for gap in gaps]

    @property
    def stopped(self) -> Stop | None:
        """The cause that ended the search before its bound, ``None`` if the bound was reached."""
        if any(c.results[-1].short_of_memory for c in self.candidates if c.results):
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

    def _improve(self, candidate: Candidate, share: float) -> None:
        """Run a candidate once and plan its next run; note why it has no points if it fails."""
        try:
            self._run(candidate, share)
            if not (candidate.results and self._draws_lines(candidate)):
                self.turns.plan_next(candidate)
        except KeyboardInterrupt:
            again = self.interrupted or self._is_stopping
            if again or not self.plans.costed or self.options.on_interrupt == "raise":
                raise
            self.interrupted = True
            candidate.leave_out("interrupted")
        except OutOfTimeError as error:
            # The run may end in time once other candidates have used less than their slices.
            candidate.run_s = max(candidate.run_s, self.clock.left_s)
            candidate.leave_out(LATE, error)
        except (UserError, MemoryError) as error:
            if candidate.lessons is not None and len(candidate.lessons):
                # Lessons couple nodes, and the tables may become too wide.
                candidate.lessons.forget()
                candidate.is_too_wide = True
            elif isinstance(error, TooWideError) and candidate.ascents is None:
                candidate.is_unsolvable = True  # lines need no tables of several nodes
            else:
                candidate.closed = True
                if not any(owner is candidate for owner, _, _ in self.plans.costed):
                    candidate.results.clear()  # no point of it can be costed
                    candidate.ascents = None
                candidate.leave_out(str(error) or "out of memory", error)

    def _run(self, candidate: Candidate, share: float) -> None:
        """Search the tables of a candidate within its tolerance, and cost its points.

        ``share`` is of the time that is left once there are tables, which cannot be cut short.
        """
        started, used, tell = time.monotonic(), time.process_time(), self._teller(candidate)
        self._build_tables(candidate, tell)
        if self._draws_lines(candidate):
            self._draw_lines(candidate, share * self.clock.left_s, tell)
        else:
            result = self._solve(
                candidate, candidate.known.problem, share * self.clock.left_s, tell
            )
            self.interrupted |= result.interrupted
            candidate.results.append(result)
            candidate.lines.append(result.lines)
            self.plans.cost(candidate, self.clock.last_s)
        # On a busy machine a run takes longer than its share of the time for the processor.
        took_s = min(time.monotonic() - started, time.process_time() - used)
        candidate.note_run(took_s)

    def _build_tables(self, candidate: Candidate, tell: Say) -> None:
        if candidate.is_fresh:
            tell("tables")
        last_s = self._last_s
        with alarm(None if last_s is None else time.monotonic() + last_s):
            if candidate.is_fresh:
                too_large = [
                    c.mesh for c in self.candidates if isinstance(c.error, TablesTooLargeError)
                ]
                allowed = self.options.search_memory_bytes
                candidate.left_bytes = check_tables(candidate.tables, too_large, allowed)
            candidate.tables.build()

    def _draws_lines(self, candidate: Candidate) -> bool:
        """Return whether lines by messages come next: first by tables, then by programs.

        They are drawn while a corner may gain, if they take less work than exact elimination, or
        if programs need far more memory than tables charge.
        """
        options = self.options
        is_fine = 0 < options.epsilon <= LADDER[0]
        if options.solve is not None or not (is_fine or candidate.is_unsolvable):
            return False  # a coarse search is for the exact ends, an exact one for all points
        if candidate.ascents is None:
            return candidate.is_unsolvable or candidate.is_wide or self._is_far(candidate)
        if self._open_corner(candidate.ascents, candidate):
            return True
        gap = self.plans.gap(candidate)
        return gap is not None and gap > candidate.tolerance and candidate.can_refine_ascents

    def _is_far(self, candidate: Candidate) -> bool:
        """Return whether programs are far from their tables, which a run has searched."""
        if not candidate.results or candidate.tables.is_small or not candidate.learns():
            return False
        return (self.plans.gap(candidate) or 0.0) > max(FAR, candidate.results[-1].epsilon)

    def _open_corner(self, ascents: Ascents, candidate: Candidate) -> Corner | None:
        """Return the corner with the weakest line that may gain, ``None`` if there is none."""
        corners = [c for c in self.plans.corners(candidate) if not ascents.is_stalled(c)]
        if not corners:
            return None
        values = ascents.values(corners)
        weakest = int(values.argmin())
        return corners[weakest] if values[weakest] < 1 / (1 + candidate.tolerance) else None

    def _draw_lines(self, candidate: Candidate, left_s: float, tell: Say) -> None:
        """Raise the bounds in the corners of a candidate, the weakest first."""
        tell("lines")
        end = time.monotonic() + left_s
        if candidate.ascents is None:
            candidate.begin_ascents(self.plans.take)
        elif self._open_corner(candidate.ascents, candidate) is None:
            candidate.refine_ascents()
        ascents = candidate.ascents
        assert ascents is not None
        while time.monotonic() < end and (corner := self._open_corner(ascents, candidate)):
            ascents.raise_bound(corner, candidate.tolerance, end - time.monotonic())

    @property
    def _last_s(self) -> float | None:
        return None if self.options.must_answer and not self.plans.costed else self.clock.last_s

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

        options, grace_s = self.options, GRACE_S if self.plans.costed else math.inf
        control = Control(self._last_s, options.on_interrupt, grace_s, watch)
        more_s, known = overhead_s(candidate.tables), self.plans.known_to(candidate)
        return solve_frontier(
            problem,
            epsilon=candidate.tolerance,
            time_limit_s=limit_s,
            control=control,
            known=[(max(time_s - more_s, 0.0), size) for time_s, size in known],
            lines=candidate.proven_lines,
            memory_bytes=candidate.left_bytes,
            in_parts=limit_s is None,
        )

    def _teller(self, candidate: Candidate) -> Say:
        count = len(self.candidates)
        several = len({c.alternative for c in self.candidates}) > 1
        where = f"recompute {candidate.alternative}, " if several else ""
        where += f"mesh {candidate.mesh}"
        where += f" ({candidate.number} of {count})" if count > 1 else ""
        return lambda what: self.say(
            f"{where}: {what}, {self.clock.past_s:.1f} s{self.plans.sketch()}"
        )


def _rank(error: Exception) -> int:
    """Return the rank of an error to show: the errors that memory or time would mend are first."""
    return (
        0 if isinstance(error, DoesNotFitError) else 1 if isinstance(error, OutOfTimeError) else 2
    )
