"""Division of a forward graph into blocks with few bytes crossing between them.

Repeated layers are found as tandem repeats in the sequence of ops. The remaining ops are divided at
the points that the fewest tensors cross, into sqrt(n) parts if nothing repeats (Chen et al., arXiv
1604.06174, section 4).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

__all__ = ["divide"]

_PERIODS = 64  # tried per stretch: the most frequent distances between equal ops
_LEAST = 3  # minimum number of ops in a repeated block
_SHARE = 16  # a repeated stretch has at least 1 / _SHARE of all ops


def divide(kinds: Sequence[Hashable], values: Sequence[tuple[int, int, int]]) -> list[range]:
    """Return the blocks in order; together they cover all ops.

    Equal ``kinds`` mark equivalent ops; ``values`` are (index of producer, index of last reader,
    bytes). Linear in ops and values, times the periods tried for each repetition found (at most
    64).
    """
    if not kinds:
        return []
    divider = _Divider(_Line.from_ops(kinds, values))
    divider.divide(0, len(kinds), None)
    return divider.blocks


@dataclass(frozen=True)
class _Line:
    """The sequence of ops, and sums over the tensors at each position.

    ``crossing[i]`` counts the tensors produced before op i and read at or after it;
    ``crossing_bytes[i]`` is their total size. ``made[i]`` is the total size of all tensors produced
    before op i.
    """

    kinds: Ints
    first: Ints
    last: Ints
    sizes: Ints
    crossing: Ints
    crossing_bytes: Ints
    made: Ints

    @classmethod
    def from_ops(cls, kinds: Sequence[Hashable], values: Sequence[tuple[int, int, int]]) -> _Line:
        import numpy as np

        numbers: dict[Hashable, int] = {}
        named = np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds], np.int64)
        first, last, sizes = np.array(values, np.int64).reshape(-1, 3).T
        steps = np.zeros((3, len(kinds) + 1), np.int64)
        for row, weights in enumerate((np.ones_like(sizes), sizes)):
            np.add.at(steps[row], first + 1, weights)
            np.add.at(steps[row], last + 1, -weights)
        np.add.at(steps[2], first + 1, sizes)
        return cls(named, first, last, sizes, *np.cumsum(steps, axis=1))

    def saved(self, run: _Run) -> int:
        """Return the bytes that recomputing the blocks of ``run`` saves.

        This is the size of all its tensors, less the tensors that other blocks read and the
        tensors of one block.
        """
        inside = (self.first >= run.begin) & (self.first < run.end)
        block_of_first = (self.first[inside] - run.begin) // run.period
        crossing = block_of_first != (self.last[inside] - run.begin) // run.period
        whole = self.made[run.end] - self.made[run.begin]
        block = self.made[run.begin + run.period] - self.made[run.begin]
        return int(whole - block - self.sizes[inside][crossing].sum())


@dataclass(frozen=True)
class _Run:
    """``count`` equivalent blocks of ``period`` ops each, starting at op ``begin``."""

    begin: int
    period: int
    count: int

    @property
    def end(self) -> int:
        return self.begin + self.period * self.count

    @property
    def blocks(self) -> list[range]:
        starts = range(self.begin, self.end, self.period)
        return [range(start, start + self.period) for start in starts]


@dataclass
class _Divider:
    line: _Line
    blocks: list[range] = field(default_factory=list)

    def divide(self, low: int, high: int, neighbour: _Run | None) -> None:
        """Append the blocks of ops ``low`` to ``high``, which adjoin the run ``neighbour``."""
        run = self._best_run(low, high)
        if run is None:
            self.blocks += self._part_ranges(low, high, neighbour)
            return
        self.divide(low, run.begin, run)
        self.blocks += run.blocks
        self.divide(run.end, high, run)

    def _best_run(self, low: int, high: int) -> _Run | None:
        """Return the run that saves most; among equals, the run with the shortest period."""
        best, most = None, 0
        for period in _periods(self.line.kinds[low:high]):
            run = self._run(low, high, period)
            if run is not None and (saved := self.line.saved(run)) > most:
                best, most = run, saved
        return best

    def _run(self, low: int, high: int, period: int) -> _Run | None:
        """Return the longest run of ``period``, starting where the fewest bytes cross."""
        kinds = self.line.kinds[low:high]
        begin, length = _longest(kinds[:-period] == kinds[period:])
        if length < period or (length + period) * _SHARE < len(self.line.kinds):
            return None
        begin, end = begin + low, begin + low + length + period
        starts = range(begin, min(begin + period, end - 2 * period + 1))
        counts = {start: (end - start) // period for start in starts}
        cuts = self.line.crossing_bytes
        start = min(starts, key=lambda i: (cuts[i + period], -counts[i]))
        return _Run(start, period, counts[start])

    def _part_ranges(self, low: int, high: int, neighbour: _Run | None) -> list[range]:
        """Return parts of roughly equal bytes, divided where the fewest tensors cross."""
        made, crossing = self.line.made, self.line.crossing
        cuts = range(low + 1, high)
        fewest = min((crossing[i] for i in cuts), default=0)
        narrow = [i for i in cuts if crossing[i] == fewest]
        total, chosen = made[high] - made[low], set()
        count = self._count(low, high, neighbour) if narrow else 1
        for number in range(1, count):
            goal = made[low] + total * number / count
            chosen.add(min(narrow, key=lambda i: abs(made[i] - goal)))
        return [range(a, b) for a, b in itertools.pairwise([low, *sorted(chosen), high]) if a < b]

    def _count(self, low: int, high: int, neighbour: _Run | None) -> int:
        """Return the number of parts: each should be about as large as a block of ``neighbour``."""
        most = round(math.sqrt(high - low))
        if neighbour is None:
            return most
        made = self.line.made
        block = made[neighbour.begin + neighbour.period] - made[neighbour.begin]
        return int(min(most, round((made[high] - made[low]) / max(block, 1))))


def _periods(kinds: Ints) -> list[int]:
    """Return the distances between equal ops that are worth trying, shortest first."""
    last: dict[int, int] = {}
    distances: Counter[int] = Counter()
    for position, kind in enumerate(kinds.tolist()):
        if kind in last:
            distances[position - last[kind]] += 1
        last[kind] = position
    often = [d for d, _ in distances.most_common(_PERIODS)]
    return sorted(d for d in often if _LEAST <= d <= len(kinds) // 2)


def _longest(equal: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Return (begin, length) of the longest run of True."""
    import numpy as np

    edges = np.diff(np.concatenate([[0], equal.astype(np.int8), [0]]))
    begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    if not len(begins):
        return 0, 0
    longest = int(np.argmax(ends - begins))
    return int(begins[longest]), int(ends[longest] - begins[longest])
