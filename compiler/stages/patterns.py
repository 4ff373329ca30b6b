"""Schedules that repeat a pattern: a micro-batch passes the stages at fixed moments.

Each stage has two chunks: micro-batches pass along the stages and back again, forward and then
backward. With passes of one moment each, a stage has four passes and two gradients of weights per
micro-batch, so the pattern repeats every six moments. The moments between neighbouring stages
decide how long activations live, and so the memory (Qi et al., "Pipeline Parallelism with
Controllable Memory", 2024).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tensoropt.runtime.stages.schedule import Schedule, Task, chain

__all__ = ["Moments", "repeat"]

Moments = tuple[int, int, int, int]
"""Moments between neighbouring stages: forward along and back, backward along and back."""

_PERIOD = 6
_TURNS = sorted(itertools.product(range(1, _PERIOD + 1), repeat=3), key=lambda own: (sum(own), own))
"""Moments at the three turns of a micro-batch, the shortest first."""


def repeat(places: tuple[int, ...], micro_batches: int, between: Moments) -> Schedule:
    """Return the schedule in which a micro-batch follows the pattern every six moments.

    ``places`` go along the stages and back. ``O(n log n)`` in the tasks.
    """
    stages = len(places) // 2
    passes = next(
        found for turns in _TURNS if _fits(found := _passes(stages, between, turns), stages)
    )
    orders = tuple(_order(passes, stage, stages, micro_batches) for stage in range(stages))
    return Schedule(places, micro_batches, orders, chain(len(places)))


def _passes(stages: int, between: Moments, turns: Sequence[int]) -> list[list[int]]:
    """Return the moments of the first micro-batch: four passes, each by stage."""
    found: list[list[int]] = []
    start = 0
    for number, step in enumerate(between):
        along = [start + step * stage for stage in range(stages)]
        found.append(along[::-1] if number % 2 else along)
        start = along[-1] + (turns[number] if number < len(turns) else 0)
    return found


def _fits(passes: Sequence[Sequence[int]], stages: int) -> bool:
    """Return whether no stage has two passes at one moment of the period."""
    places = ({own[stage] % _PERIOD for own in passes} for stage in range(stages))
    return all(len(own) == len(passes) for own in places)


def _order(
    passes: Sequence[Sequence[int]], stage: int, stages: int, micro_batches: int
) -> tuple[Task, ...]:
    """Return the tasks of a stage; gradients of weights take the moments between passes."""
    chunks = (stage, 2 * stages - 1 - stage)
    works = (("F", chunks[0]), ("F", chunks[1]), ("B", chunks[1]), ("B", chunks[0]))
    moments = sorted(
        (own[stage] + _PERIOD * micro_batch, micro_batch, number)
        for micro_batch in range(micro_batches)
        for number, own in enumerate(passes)
    )
    order: list[Task] = []
    weights: list[Task] = []
    free = moments[0][0]
    for moment, micro_batch, number in moments:
        taken = min(len(weights), moment - free)
        order += weights[:taken]
        del weights[:taken]
        work, chunk = works[number]
        order.append(Task("F" if work == "F" else "B", micro_batch, chunk))
        if work == "B":
            weights.append(Task("W", micro_batch, chunk))
        free = moment + 1
    return (*order, *weights)
