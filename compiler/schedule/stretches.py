"""Where a program can be cut so that each stretch is ordered alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensoropt.compiler.schedule.tasks import Task, Tasks

__all__ = ["stretches"]

_LONGEST = 160
"""Tasks of a stretch: the work on one grows with the square of its length."""


def stretches(program: Tasks, alive: Sequence[int]) -> Iterator[range]:
    """Yield the tasks of each stretch, in order; the return is in none.

    A task that needs all before it, and that all after it need, has its place in every order, so
    what lies between two such tasks is ordered alone without a loss. Tasks that nothing needs are
    left out of account: they stay between the same two. Nothing passes from one part of a training
    step to another. A stretch of more than 160 tasks is cut further, where the fewest bytes are
    ``alive``, which may miss better orders. Linear but for that.
    """
    start = 0
    for stop in _cuts(program.tasks):
        yield from _halved(range(start, stop), alive)
        start = stop


def _cuts(tasks: Sequence[Task]) -> Iterator[int]:
    """Yield the places after which a stretch begins, the place of the return last."""
    end = len(tasks) - 1
    needed = _all_before_lead_here(tasks[:end])
    needs = _all_after_come_from_here(tasks[:end])
    for place in range(1, end):
        changes = tasks[place].stage != tasks[place - 1].stage
        if changes or (needed[place - 1] and needs[place - 1]):
            yield place
    if end > 0:
        yield end


def _all_before_lead_here(tasks: Sequence[Task]) -> list[bool]:
    """Say of each task whether every one before it, which anything needs, leads to it.

    It does if each has a reader no later than this one: the reader leads here in turn.
    """
    first_reader: dict[int, int] = {}
    for place, task in enumerate(tasks):
        for maker in task.after:
            first_reader.setdefault(maker, place)
    found, latest = [], 0
    for place in range(len(tasks)):
        found.append(latest <= place)
        latest = max(latest, first_reader.get(place, 0))
    return found


def _all_after_come_from_here(tasks: Sequence[Task]) -> list[bool]:
    """Say of each task whether every later one needs it."""
    found, earliest = [True] * len(tasks), len(tasks)
    for place in reversed(range(len(tasks))):
        found[place] = earliest >= place
        earliest = min(earliest, max(tasks[place].after, default=-1))
    return found


def _halved(stretch: range, alive: Sequence[int]) -> Iterator[range]:
    """Cut a stretch that is too long in its middle half, where the fewest bytes are alive."""
    if len(stretch) <= _LONGEST:
        yield stretch
        return
    quarter = len(stretch) // 4
    middle = range(stretch.start + quarter, stretch.stop - quarter)
    cut = min(middle, key=lambda place: (alive[place], place)) + 1
    yield from _halved(range(stretch.start, cut), alive)
    yield from _halved(range(cut, stretch.stop), alive)
