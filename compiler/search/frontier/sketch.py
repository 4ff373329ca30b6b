"""A table of the best plans so far, for the status on a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensoropt.compiler.search.frontier.candidate import Costed, Programs, spread
from tensoropt.compiler.support.units import format_bytes, format_seconds

__all__ = ["sketch"]

ROWS = 12
"""Most rows of the table: it leaves space on a terminal of 24 lines."""


def sketch(costed: Sequence[Costed], programs: Programs) -> str:
    """Return a line for each plan that no other beats, at most `ROWS`, each after a line end.

    Times and memory are without the fusion and the overlap of collectives, which come last.
    O(n log n) in the plans.
    """
    best, least = list[int](), math.inf
    for number in sorted(range(len(programs)), key=programs.__getitem__):
        if programs[number][1] < least:
            best.append(number)
            least = programs[number][1]
    lines = []
    for place in sorted(spread(len(best), ROWS)):
        candidate, _, _ = costed[best[place]]
        time_s, size = programs[best[place]]
        figures = f"{format_seconds(time_s):>9}  {format_bytes(size):>9}"
        lines.append(f"\n{figures}  {candidate.mesh}  {candidate.alternative}".rstrip(" "))
    return "".join(lines)
