"""The ordering problem of a stretch of a program, independent of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tensoropt.compiler.schedule.tasks import Tasks

__all__ = ["Problem", "bits", "problem_of"]


@dataclass(frozen=True)
class Problem:
    """Tasks to order. Memory is relative to the live bytes before the first task.

    Sets of tasks are bit masks. Per task: ``makes`` are the bytes of its results, ``drops`` the
    bytes of its unused results, ``after`` its predecessors, and ``reads`` the numbers of the
    tensors that it may free. Per tensor: ``sizes`` are the bytes, ``readers`` the tasks that read
    it, ``makers`` the task that makes it, -1 if it was live at the start. Equal problems have equal
    solutions, so solutions can be memoized.
    """

    makes: tuple[int, ...]
    drops: tuple[int, ...]
    after: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    readers: tuple[int, ...]
    makers: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.makes)

    @cached_property
    def before(self) -> tuple[int, ...]:
        """All direct and indirect predecessors of each task."""
        found: list[int] = []
        for after in self.after:
            found.append(after)
            for task in bits(after):
                found[-1] |= found[task]
        return tuple(found)

    @cached_property
    def later(self) -> tuple[int, ...]:
        """All direct and indirect successors of each task."""
        found = [0] * len(self)
        for task in reversed(range(len(self))):
            for earlier in bits(self.after[task]):
                found[earlier] |= found[task] | 1 << task
        return tuple(found)

    @cached_property
    def then(self) -> tuple[tuple[int, ...], ...]:
        """The direct successors of each task."""
        found: list[list[int]] = [[] for _ in self.makes]
        for task, after in enumerate(self.after):
            for earlier in bits(after):
                found[earlier].append(task)
        return tuple(map(tuple, found))

    def freed(self, task: int, done: int) -> int:
        """Return the bytes that die with ``task``, once it and the tasks of ``done`` have run."""
        done |= 1 << task
        dead = sum(self.sizes[t] for t in self.reads[task] if not self.readers[t] & ~done)
        return dead + self.drops[task]

    @cached_property
    def given(self) -> int:
        """Peak live bytes of the given order."""
        alive = done = highest = 0
        for task in range(len(self)):
            alive += self.makes[task]
            highest = max(highest, alive)
            alive -= self.freed(task, done)
            done |= 1 << task
        return highest

    @cached_property
    def floor(self) -> int:
        """Lower bound on the peak of every order: the most bytes that must be live in a task."""
        return max(map(self._needed, range(len(self))), default=0)

    def _needed(self, task: int) -> int:
        """Return a lower bound on the live bytes while ``task`` runs.

        Counts all results made by then, except tensors that may be dead by then.
        """
        before, here = self.before[task], self.before[task] | 1 << task
        from_here = self.later[task] | 1 << task
        alive = sum(self.makes[t] for t in bits(here)) - sum(self.drops[t] for t in bits(before))
        for size, readers, maker in zip(self.sizes, self.readers, self.makers, strict=True):
            if not readers & from_here and (maker < 0 or here >> maker & 1):
                alive -= size
        return alive


def bits(mask: int) -> list[int]:
    """Return the positions of the set bits of ``mask``, in order."""
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found


def problem_of(program: Tasks, stretch: range, last_use: Sequence[int]) -> Problem:
    """Return the problem of ordering a stretch.

    ``last_use`` is the last reader of each tensor, or its maker if it has no reader.
    """
    makes, drops, after, reads = [], [], [], []
    sizes: list[int] = []
    readers: list[int] = []
    makers: list[int] = []
    numbers: dict[int, int] = {}
    made_by = {
        tensor: place - stretch.start for place in stretch for tensor in program.tasks[place].makes
    }
    for place in stretch:
        task, own = program.tasks[place], place - stretch.start
        makes.append(sum(program.sizes[tensor] for tensor in task.makes))
        drops.append(sum(program.sizes[t] for t in task.makes if last_use[t] == place))
        after.append(sum(1 << t - stretch.start for t in task.after if t >= stretch.start))
        ending = [tensor for tensor in task.reads if last_use[tensor] < stretch.stop]
        for tensor in ending:
            if tensor not in numbers:
                numbers[tensor] = len(sizes)
                sizes.append(program.sizes[tensor])
                readers.append(0)
                makers.append(made_by.get(tensor, -1))
            readers[numbers[tensor]] |= 1 << own
        reads.append(tuple(numbers[tensor] for tensor in ending))
    fields = (makes, drops, after, reads, sizes, readers, makers)
    return Problem(*map(tuple, fields))  # type: ignore[arg-type]
