"""Division of a program into stretches that are ordered independently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensoropt.compiler.schedule.tasks import Task, Tasks

__all__ = ["stretches"]

_LONGEST = 160
"""Maximum number of tasks of a stretch: its search time is quadratic in its length."""


def stretches(program: Tasks, alive: Sequence[int]) -> Iterator[range]:
    """Yield the tasks of each stretch, in order; the return is in no stretch.

    A task that depends on all earlier tasks, and that all later tasks depend on, has the same place
    in every order. The tasks between two such tasks are therefore ordered independently without
    loss. Tasks without successors are ignored in this test and stay in their stretch. No task
    leaves its part of a training step. A stretch of more than 160 tasks is divided further at the
    point with the fewest bytes ``alive``, which may miss better orders. Linear apart from that.
    """
    start = 0
    for stop in _cuts(program.tasks):
        yield from _halved(range(start, stop), alive)
        start = stop


def _cuts(tasks: Sequence[Task]) -> Iterator[int]:
    """Yield the places at which a new stretch begins, and last the place of the return."""
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
    """Return per task whether it depends on every earlier task that has a successor.

    It does if each of these has a successor no later than the task itself: by induction that
    successor leads here.
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
    """Return per task whether every later task depends on it."""
    found, earliest = [True] * len(tasks), len(tasks)
    for place in reversed(range(len(tasks))):
        found[place] = earliest >= place
        earliest = min(earliest, max(tasks[place].after, default=-1))
    return found


def _halved(stretch: range, alive: Sequence[int]) -> Iterator[range]:
    """Divide a stretch that is too long, at the fewest live bytes within its middle half."""
    if len(stretch) <= _LONGEST:
        yield stretch
        return
    quarter = len(stretch) // 4
    middle = range(stretch.start + quarter, stretch.stop - quarter)
    cut = min(middle, key=lambda place: (alive[place], place)) + 1
    yield from _halved(range(stretch.start, cut), alive)
    yield from _halved(range(cut, stretch.stop), alive)
