"""A stretch of a program by itself: what its order changes, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tensoropt.compiler.schedule.tasks import Tasks

__all__ = ["Problem", "bits", "problem_of"]


@dataclass(frozen=True)
class Problem:
    """Tasks to order. Bytes count from what is alive before the first; sets are masks of bits.

    ``makes`` holds the bytes of the results of each task, ``drops`` those of results that nothing
    reads, ``after`` the tasks that come first, and ``reads`` what it may free: the tensors, by
    number. ``sizes`` are their bytes, ``readers`` the tasks that read each, ``makers`` the task
    that makes it, -1 if it was there. Equal problems have equal answers.
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
        """The tasks that must have run before each, however far."""
        found: list[int] = []
        for after in self.after:
            found.append(after)
            for task in bits(after):
                found[-1] |= found[task]
        return tuple(found)

    @cached_property
    def later(self) -> tuple[int, ...]:
        """The tasks that must run after each, however far."""
        found = [0] * len(self)
        for task in reversed(range(len(self))):
            for earlier in bits(self.after[task]):
                found[earlier] |= found[task] | 1 << task
        return tuple(found)

    @cached_property
    def then(self) -> tuple[tuple[int, ...], ...]:
        """The tasks that may be ready once each has run."""
        found: list[list[int]] = [[] for _ in self.makes]
        for task, after in enumerate(self.after):
            for earlier in bits(after):
                found[earlier].append(task)
        return tuple(map(tuple, found))

    def freed(self, task: int, done: int) -> int:
        """Return the bytes that are over after ``task``, if ``done`` and it have run."""
        done |= 1 << task
        over = sum(self.sizes[one] for one in self.reads[task] if not self.readers[one] & ~done)
        return over + self.drops[task]

    @cached_property
    def given(self) -> int:
        """The most bytes alive in the order given."""
        alive = done = highest = 0
        for task in range(len(self)):
            alive += self.makes[task]
            highest = max(highest, alive)
            alive -= self.freed(task, done)
            done |= 1 << task
        return highest

    @cached_property
    def floor(self) -> int:
        """Bytes that every order reaches: what must be alive while a task runs."""
        return max(map(self._needed, range(len(self))), default=0)

    def _needed(self, task: int) -> int:
        """Return what is alive at least: all that was made, but for what can be over by then."""
        before, here = self.before[task], self.before[task] | 1 << task
        wanted = self.later[task] | 1 << task
        alive = sum(self.makes[one] for one in bits(here))
        alive -= sum(self.drops[one] for one in bits(before))
        for size, readers, maker in zip(self.sizes, self.readers, self.makers, strict=True):
            if not readers & wanted and (maker < 0 or here >> maker & 1):
                alive -= size
        return alive


def bits(mask: int) -> list[int]:
    """Return the numbers of the bits of ``mask``, in order."""
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found


def problem_of(program: Tasks, stretch: range, last_use: Sequence[int]) -> Problem:
    """Return the problem of ordering a stretch; ``last_use`` is the last reader of each tensor,
    or what makes it if there is none."""
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
        after.append(sum(1 << one - stretch.start for one in task.after if one >= stretch.start))
        ending = [tensor for tensor in task.reads if last_use[tensor] < stretch.stop]
        for tensor in ending:
            if tensor not in numbers:
                numbers[tensor] = len(sizes)
                sizes.append(program.sizes[tensor])
                readers.append(0)
                makers.append(made_by.get(tensor, -1))
            readers[numbers[tensor]] |= 1 << own
        reads.append(tuple(numbers[tensor] for tensor in ending))
    held = (makes, drops, after, reads, sizes, readers, makers)
    return Problem(*map(tuple, held))  # type: ignore[arg-type]
