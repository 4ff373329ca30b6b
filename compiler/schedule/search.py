"""Beam search for an order of a stretch with a lower peak, over the sets of finished tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tensoropt.compiler.schedule.problem import Problem, bits

__all__ = ["lower_order"]

_CHOICES = 8
"""Largest number of ready tasks tried from one state."""

_Trail: TypeAlias = "tuple[int, _Trail] | None"


@dataclass(slots=True)
class _State:
    """A set of finished tasks and its lowest known peak; ``trail`` lists the tasks, last first."""

    done: int
    ready: int
    alive: int
    peak: int
    trail: _Trail

    def rank(self) -> tuple[int, int, int]:
        return self.peak, self.alive, self.done


def lower_order(problem: Problem, width: int, most: int) -> tuple[list[int] | None, int]:
    """Return an order with a lower peak than the given order, or ``None``, and the steps taken.

    Dynamic programming over the sets of finished tasks, from small to large: only the order of
    lowest peak is retained for each set. A ready task that raises neither the peak nor the live
    bytes runs immediately, which is never worse. Of the sets with the same number of tasks, the
    ``width`` best are expanded; the result is optimal if there are never more.
    ``most`` bounds the steps. Time: ``width`` times the square of the tasks.
    """
    return _Search(problem, width, most).run()


class _Search:
    def __init__(self, problem: Problem, width: int, most: int) -> None:
        self.problem, self.width, self.most = problem, width, most
        self.steps = 0
        self.floor = problem.floor
        self.bound = problem.given
        self.sets: list[dict[int, _State]] = [{} for _ in range(len(problem) + 1)]

    def run(self) -> tuple[list[int] | None, int]:
        if self.floor >= self.bound:
            return None, self.steps
        ready = sum(1 << task for task, after in enumerate(self.problem.after) if not after)
        self._add(_State(0, ready, 0, self.floor, None))
        for count in range(len(self.problem)):
            for state in sorted(self.sets[count].values(), key=_State.rank)[: self.width]:
                for task in self._choices(state):
                    self._add(self._advance(state, task))
            self.sets[count].clear()
            if self.steps > self.most:
                return None, self.steps
        found = self.sets[-1].values()
        return next((_order(state.trail) for state in found), None), self.steps

    def _add(self, state: _State) -> None:
        """Run all harmless tasks, then keep the state unless its set is known with a lower peak."""
        while (task := self._harmless(state)) is not None:
            state = self._advance(state, task)
        if state.peak >= self.bound:
            return
        known = self.sets[state.done.bit_count()]
        other = known.get(state.done)
        if other is None or state.peak < other.peak:
            known[state.done] = state

    def _harmless(self, state: _State) -> int | None:
        """Return the first ready task that raises neither the peak nor the live bytes."""
        for task in bits(state.ready):
            made = self.problem.makes[task]
            if state.alive + made <= state.peak and made <= self.problem.freed(task, state.done):
                return task
        return None

    def _choices(self, state: _State) -> Iterator[int]:
        def rank(task: int) -> tuple[int, int, int]:
            made = self.problem.makes[task]
            peak = max(state.peak, state.alive + made)
            return peak, made - self.problem.freed(task, state.done), task

        yield from sorted(bits(state.ready), key=rank)[:_CHOICES]

    def _advance(self, state: _State, task: int) -> _State:
        self.steps += 1
        alive = state.alive + self.problem.makes[task]
        done = state.done | 1 << task
        ready = state.ready & ~(1 << task)
        for successor in self.problem.then[task]:
            if not self.problem.after[successor] & ~done:
                ready |= 1 << successor
        left = alive - self.problem.freed(task, state.done)
        return _State(done, ready, left, max(state.peak, alive), (task, state.trail))


def _order(trail: _Trail) -> list[int]:
    order = []
    while trail is not None:
        task, trail = trail
        order.append(task)
    return order[::-1]
