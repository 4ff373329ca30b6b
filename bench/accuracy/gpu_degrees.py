"""The fewest GPUs for a time per token, by predictions and by published measurements.

    python bench/accuracy/gpu_degrees.py gpu_serving.csv            print the table
    python bench/accuracy/gpu_degrees.py gpu_serving.csv --write    into docs/benchmarks.md too

The file is described in `gpu_serving.py`; all of its rows are used. A limit on the time per token
is the geometric mean of the times of two numbers of GPUs.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sections import print_comparison

from accuracy.gpu_serving import Published, read_rows, served_s
from tensoropt.runtime.support.flags import run_command

__all__ = ["fewest", "limits"]

_TEXT = """\
### The fewest GPUs for a time per token

`make bench-gpu-degrees ARGS="gpu_serving.csv --write"`: which number of GPUs is the least for a
limit on the time per token, by the served times above and by tensoropt's prediction with prompts.
Each limit is between the served times of two numbers of GPUs.
"""


def limits(times_s: Mapping[int, float]) -> Iterator[float]:
    """Yield limits between the times of neighbouring numbers of GPUs, and one above all."""
    for slow_s, fast_s in pairwise(times_s[ranks] for ranks in sorted(times_s)):
        yield math.sqrt(slow_s * fast_s)
    yield 1.5 * max(times_s.values())


def fewest(times_s: Mapping[int, float], limit_s: float) -> int | None:
    """Return the fewest GPUs with a time within the limit, None if there are none."""
    return min((ranks for ranks, time_s in times_s.items() if time_s <= limit_s), default=None)


def _text(path: Path) -> str:
    return "\n".join(_table(read_rows(path, math.inf)))


def _table(rows: Sequence[Published]) -> Iterator[str]:
    measured, predicted = (defaultdict[tuple[int, int, int], dict[int, float]](dict) for _ in "mp")
    for row in rows:
        kind = row.isl, row.osl, row.batch
        measured[kind][row.ranks] = row.time_s
        predicted[kind][row.ranks] = served_s(row)
    counts: dict[int | None, list[int]] = defaultdict(lambda: [0, 0, 0])
    for kind, times_s in measured.items():
        for limit_s in limits(times_s):
            wanted, got = (fewest(own, limit_s) or 16 for own in (times_s, predicted[kind]))
            counts[wanted][1 + (got > wanted) - (got < wanted)] += 1
    yield "| GPUs by served times | limits | fewer predicted | the same | more predicted |"
    yield "|---:|---:|---:|---:|---:|"
    for wanted in sorted(counts):
        fewer, same, more = counts[wanted]
        yield f"| {wanted} | {fewer + same + more} | {fewer} | {same} | {more} |"
    fewer, same, more = map(sum, zip(*counts.values(), strict=True))
    yield f"| all | {fewer + same + more} | {fewer} | {same} | {more} |"


if __name__ == "__main__":
    what = "gpu_serving.csv, of AIConfigurator"
    sys.exit(run_command(lambda: print_comparison(__doc__, what, "gpu_degrees", _TEXT, _text)))
