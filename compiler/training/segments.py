"""Dividing a forward graph into blocks, between which few bytes pass.

Repeated layers are found as tandem repeats in the sequence of its ops; what is left is divided into
about sqrt(n) parts where the fewest tensors cross (Chen et al., arXiv 1604.06174, section 4).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Line", "divide"]

_PERIODS = 64  # tried per part: the most frequent distances between equal ops
_LEAST = 3  # ops of a block


@dataclass(frozen=True)
class Line:
    """Ops in program order: ``kinds`` says which are alike; ``made`` are the bytes of each.

    A cut lies before an op: ``crossing[i]`` counts the tensors that pass from before op i to it or
    behind it, ``crossing_bytes[i]`` adds up their sizes.
    """

    kinds: Sequence[Hashable]
    made: Sequence[int]
    crossing: Sequence[int]
    crossing_bytes: Sequence[int]


def divide(line: Line) -> list[range]:
    """Return the blocks in order, which cover all ops.

    Cost: n log n for n ops without repetition; n times the periods tried for each repetition.
    """
    import numpy as np

    numbers: dict[Hashable, int] = {}
    kinds = np.array([numbers.setdefault(kind, len(numbers)) for kind in line.kinds], np.int64)
    found: list[range] = []
    _divide(line, kinds, 0, len(kinds), found)
    return found


def _divide(line: Line, kinds: Any, low: int, high: int, found: list[range]) -> None:
    """Append the blocks of ops ``low`` to ``high``."""
    if low == high:
        return
    run = _best_run(kinds[low:high])
    if run is None:
        found.extend(_parts(line, low, high))
        return
    begin, end, period = run[0] + low, run[1] + low, run[2]
    starts = range(begin, min(begin + period, end - period))
    start = min(starts, key=lambda i: (line.crossing_bytes[i + period], -((end - i) // period)))
    count = (end - start) // period
    _divide(line, kinds, low, start, found)
    found.extend(range(start + i * period, start + (i + 1) * period) for i in range(count))
    _divide(line, kinds, start + count * period, high, found)


def _best_run(kinds: npt.NDArray[np.int64]) -> tuple[int, int, int] | None:
    """Return (begin, end, period) of the longest stretch that repeats, ``None`` without one.

    The stretch is at least two periods long; of those that repeat the same ops, that with the
    shortest period.
    """
    best, most = None, 0
    for period in _periods(kinds):
        begin, length = _longest(kinds[:-period] == kinds[period:])
        if length >= period and (repeated := length // period * period) > most:
            best, most = (begin, begin + length + period, period), repeated
    return best


def _periods(kinds: npt.NDArray[np.int64]) -> list[int]:
    """Return the distances worth trying, shortest first."""
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


def _parts(line: Line, low: int, high: int) -> list[range]:
    """Return about sqrt(n) parts that make about as many bytes each, where the fewest cross."""
    cuts = range(low + 1, high)
    fewest = min((line.crossing[i] for i in cuts), default=0)
    narrow = [i for i in cuts if line.crossing[i] == fewest]
    count = round(math.sqrt(high - low))
    sums, total = {}, 0
    for i in range(low, high):
        sums[i] = total
        total += line.made[i]
    chosen: list[int] = []
    for number in range(1, count):
        if narrow:
            goal = total * number / count
            chosen.append(min(narrow, key=lambda i: abs(sums[i] - goal)))
    ends = [low, *sorted(set(chosen)), high]
    return [range(a, b) for a, b in itertools.pairwise(ends)]
