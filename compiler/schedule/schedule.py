"""Reordering of a program for lower peak memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, groupby
from operator import eq

from tensoropt.compiler.schedule.problem import Problem, problem_of
from tensoropt.compiler.schedule.search import lower_order
from tensoropt.compiler.schedule.stretches import stretches
from tensoropt.compiler.schedule.tasks import Task, Tasks, peaks

__all__ = ["depth_first", "in_order", "lower_peak"]

_STEPS = 10_000
"""Step budget of the searches from one order, about half a second. A count of steps instead of a
time makes results reproducible."""
_WIDEST, _AREA = 256, 2048
_WORTH = 0.5


def lower_peak(program: Tasks) -> list[int]:
    """Return the tasks in an order with a lower peak, or in the given order if none was found.

    The given order is improved stretch by stretch. If its peak stays above the lower bound, the
    depth-first order is improved too, and the better order wins. Linear in the tasks, apart from
    the searches, which have a bounded number of steps.
    """
    given = list(range(len(program.tasks)))
    order, peak, unavoidable = _improved(program, given)
    if peak > unavoidable:
        other, other_peak, _ = _improved(program, depth_first(program))
        if other_peak < peak:
            return other
    return order


def in_order(program: Tasks, order: Sequence[int]) -> Tasks:
    """Return the program with its tasks in ``order`` and renumbered."""
    if all(map(eq, order, count())):
        return program
    place = [0] * len(order)
    for number, task in enumerate(order):
        place[task] = number
    tasks = [
        Task(task.reads, task.makes, tuple(map(place.__getitem__, task.after)), task.stage)
        for task in map(program.tasks.__getitem__, order)
    ]
    operations = [program.operations[task] for task in order] if program.operations else ()
    return replace(program, tasks=tasks, operations=operations)


def depth_first(program: Tasks, *, last_first: bool = False) -> list[int]:
    """Return the tasks in depth-first order, stage by stage: each just before its first successor.

    Predecessors of a task, and tasks without successors, keep their relative order. ``last_first``
    reverses it, which is the default order of nodes in ONNX Runtime. Linear.
    """
    order: dict[int, None] = {}
    for _, stage in groupby(range(len(program.tasks)), lambda task: program.tasks[task].stage):
        members = list(stage)
        needed = {before for task in members for before in program.tasks[task].after}
        for end in reversed(members) if last_first else members:
            if end not in needed:
                _visit(program, end, order, last_first=last_first)
    return list(order)


def _visit(program: Tasks, end: int, order: dict[int, None], *, last_first: bool) -> None:
    """Add the missing predecessors of ``end`` to ``order``, then ``end``."""

    def needs(task: int) -> Iterator[int]:
        after = program.tasks[task].after
        return iter(sorted(after, reverse=True) if last_first else after)

    stack = [(end, needs(end))]
    while stack:
        task, needed = stack[-1]
        missing = next((before for before in needed if before not in order), None)
        if missing is None:
            order[task] = None
            stack.pop()
        else:
            stack.append((missing, needs(missing)))


def _improved(program: Tasks, order: Sequence[int]) -> tuple[list[int], int, int]:
    """Return an improved order, its peak, and a lower bound on the peak of every order."""
    schedule = _Schedule(in_order(program, order))
    found = list(schedule.run())
    if not found:
        return list(order), max(schedule.alive), schedule.unavoidable
    changed = list(order)
    for stretch, better in found:
        changed[stretch.start : stretch.stop] = [order[place] for place in better]
    return changed, max(peaks(in_order(program, changed))), schedule.unavoidable


class _Schedule:
    """Orders the stretches of a program, from the highest peak down."""

    def __init__(self, program: Tasks) -> None:
        self.program = program
        self.alive = peaks(program)
        self.last = _last_uses(program)
        self.solved: dict[Problem, tuple[int, list[int] | None]] = {}
        self.steps = _STEPS
        self.unavoidable = 0

    def run(self) -> Iterator[tuple[range, list[int]]]:
        """Yield each stretch that can be improved, with its tasks in an order of lower peak.

        Live tensors at the ends of a stretch do not change, so no other peak rises. Stops when
        `_STEPS` are spent. Equal stretches, such as repeated layers, are solved once. Stretches
        below half the lower bound of the program are skipped: few layouts would make them matter.
        """
        found = stretches(self.program, self.alive)
        for stretch in sorted(found, key=lambda own: (-self._peak(own), own.start)):
            if self._peak(stretch) >= _WORTH * self.unavoidable and self.steps > 0:
                order = self._order(stretch)
                if order is not None:
                    yield stretch, [stretch.start + task for task in order]

    def _peak(self, stretch: range) -> int:
        return max(self.alive[place] for place in stretch)

    def _order(self, stretch: range) -> list[int] | None:
        problem = problem_of(self.program, stretch, self.last)
        if problem not in self.solved:
            width = max(2, min(_WIDEST, _AREA // len(stretch)))
            order, steps = lower_order(problem, width, min(_STEPS // 4, self.steps))
            self.solved[problem] = problem.floor, order
            self.steps -= steps
        floor, order = self.solved[problem]
        before = self._peak(stretch) - problem.given
        self.unavoidable = max(self.unavoidable, before + floor)
        return order


def _last_uses(program: Tasks) -> Sequence[int]:
    """Return the last task that reads each tensor, or its maker if it has no reader."""
    last = [0] * len(program.sizes)
    for place, task in enumerate(program.tasks):
        for tensor in (*task.makes, *task.reads):
            last[tensor] = place
    return last
