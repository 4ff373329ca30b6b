"""Lines that bound the plans of a mesh, and the plans that minimise along them.

A better plan than those that are known is below a corner: faster than one plan and leaner than the
next. In every corner the weights of time and of all moments ascend until their line excludes it.
The plans that minimise weighted sums on the way divide the corners (``engine/relaxation.hpp``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensoropt.compiler.search.engine.relaxation import LineBounds, Multipliers
from tensoropt.compiler.search.frontier.bounds import errors_by_lines
from tensoropt.compiler.search.problem.cost_tables import Assignment
from tensoropt.compiler.search.problem.problem import NO_LINES, Floats, Lines, Problem

__all__ = ["Ascents", "Corner", "turn_sums"]

Corner = tuple[float, float]
"""Seconds and bytes; infinite beyond the leanest and the fastest plan."""

STEPS, SWEEPS = 8, 4
"""Steps of the weights per turn of a corner, and sweeps of messages per step.

Ablation: messages.
"""
END_SWEEPS = 12
"""Sweeps for the least time, which has no weights that could change."""
FEWEST_GAINED = 0.002
"""Growth of a bound below which a turn of a corner has gained nothing."""
FRUITLESS = 2
"""Turns of a corner that gain nothing before plans are mixed and it is left to the engine."""
MIXED = 12
"""Most plans that are mixed in a corner. Ablation: mixtures."""
MIXTURE_EPSILON = 0.01
"""Bound of the mixtures that are searched."""
MIXING_S = 0.3
"""Most seconds for the mixtures of a corner in a search with a time limit."""


def turn_sums(problem: Problem) -> float:
    """Return the number of sums in the sweeps of one turn of a corner."""
    cells = sum(table.time_s.size for table in (*problem.nodes, *problem.edges))
    return 2.0 * STEPS * SWEEPS * cells


@dataclass
class _State:
    """The multipliers of a corner, and its last turns that gained nothing."""

    at: Multipliers
    fruitless: int = 0


@dataclass(eq=False)
class Ascents:
    """The lines of one mesh.

    ``take`` gets each assignment that is found. It returns its seconds, without overheads, and its
    bytes, both above 0; None if the assignment is forbidden.
    """

    bounds: LineBounds
    take: Callable[[Assignment], Corner | None]
    lines: Lines = field(default_factory=lambda: NO_LINES)
    _states: dict[Corner, _State] = field(default_factory=dict)
    _plans: dict[bytes, tuple[Corner, Assignment]] = field(default_factory=dict)

    def bound_ends(self, time_s: float) -> None:
        """Bound the time alone and the memory alone; ``time_s`` is about the least time."""
        fastest, leanest = self.bounds.start(1.0), self.bounds.start(0.0)
        self._ascend(fastest, (time_s, math.inf), math.inf, math.inf)
        if not self._plans:  # each assignment that was found is forbidden
            return
        time_s, memory_bytes = min(cost for cost, _ in self._plans.values())
        self._ascend(leanest, (math.inf, memory_bytes), 1.0, math.inf)
        self._states[time_s, math.inf] = _State(fastest)
        self._states[math.inf, memory_bytes] = _State(leanest)

    def continue_on(self, bounds: LineBounds) -> Ascents:
        """Return ascents of the same plans, with their lines, by other bounds."""
        return Ascents(bounds, self.take, self.lines, {}, self._plans)

    def is_stalled(self, corner: Corner) -> bool:
        """Return whether turns of a corner have ceased to gain anything."""
        return corner in self._states and self._states[corner].fruitless >= FRUITLESS

    def raise_bound(self, corner: Corner, epsilon: float, limit_s: float) -> None:
        """Spend one turn on a corner, until its line excludes all plans of use within ``epsilon``.

        Linear in the cells of the distinct tables, times steps and sweeps.
        """
        state = self._states.get(corner)
        if state is None:
            state = self._states[corner] = _State(self._near(corner).copy())
        before = self.values([corner])[0]
        self._ascend(state.at, corner, 1 / (1 + epsilon), limit_s)
        gained = self.values([corner])[0] - before
        state.fruitless = state.fruitless + 1 if gained < FEWEST_GAINED else 0
        if state.fruitless == FRUITLESS and all(map(math.isfinite, corner)):
            self._mix_plans(state.at, corner, limit_s)

    def _mix_plans(self, at: Multipliers, corner: Corner, limit_s: float) -> None:
        """Take the best mixtures of the plans that are nearest to a corner."""

        def excess(plan: tuple[Corner, Assignment]) -> float:
            return max(plan[0][0] / corner[0], plan[0][1] / corner[1])

        near = sorted(self._plans.values(), key=excess)[:MIXED]
        choices = [choice.tolist() for _, choice in near]
        # Without a time limit the same search gives the same points.
        limit_s = limit_s if math.isinf(limit_s) else min(limit_s, MIXING_S)
        self._take(self.bounds.mixtures(at, choices, *corner, MIXTURE_EPSILON, limit_s))

    def _take(self, choices: Iterable[Assignment]) -> None:
        for choice in choices:
            key = choice.tobytes()
            if key not in self._plans and (cost := self.take(choice)) is not None:
                self._plans[key] = cost, choice

    def values(self, corners: Sequence[Corner]) -> Floats:
        """Return the part of each corner below which no plan is in both costs, 0 if unknown."""
        time_s, memory = np.array(corners).T
        parts: Floats = 1 / (1 + errors_by_lines(time_s, memory, self.lines))
        return parts

    def _near(self, corner: Corner) -> Multipliers:
        """Return the multipliers of the nearest corner of the same kind, else a new start."""
        alike = [
            other
            for other in self._states
            if [*map(math.isinf, other)] == [*map(math.isinf, corner)]
        ]
        if not alike:
            is_leanest, is_fastest = map(math.isinf, corner)
            return self.bounds.start(1.0 if is_fastest else 0.0 if is_leanest else 0.5)

        def distance(other: Corner) -> float:
            pairs = zip(corner, other, strict=True)
            return sum(abs(math.log(x / y)) for x, y in pairs if math.isfinite(x))

        return self._states[min(alike, key=distance)].at

    def _ascend(self, at: Multipliers, corner: Corner, enough: float, limit_s: float) -> None:
        """Ascend in a corner, take the plans, and add the line."""
        is_end = [*map(math.isinf, corner)]
        time_s, size = (1.0 if end else cost for end, cost in zip(is_end, corner, strict=True))
        steps, sweeps = (1, END_SWEEPS) if is_end[1] else (STEPS, SWEEPS)
        bound, time_weight, choices = self.bounds.ascend(
            at, time_s, size, enough, not any(is_end), steps, sweeps, limit_s
        )
        self._take(choices)
        if bound > 0:
            line = time_weight / time_s, (1 - time_weight) / size, bound
            self.lines = np.vstack([self.lines, line])
