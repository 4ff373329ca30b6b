"""Time collectives inside a graph, and calls of collectives in a loop.

    python bench/collectives/latency.py                     2 ranks over MPI
    python bench/collectives/latency.py --provider cuda     NCCL on GPUs (for --write there, see
                                                            bench/gpu/check.py)

The time of a graph of equal collectives in sequence, divided by their number, is compared with as
many calls of MPI (with mpi4py) or NCCL (as in nccl-tests) into the same arrays, on the same stream.
*size* is the larger of input and output on one rank. *bus* is the bus bandwidth of nccl-tests:
bytes that cross the slowest link in the best algorithm, per second.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from gpu.chain import KINDS
from gpu.failure import RunError
from gpu.ranks import on_ranks
from gpu.setting import table
from sections import write_section

from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["HEAD", "SIZES", "main", "measured", "rows_of"]

HEAD = ["collective", "ranks", "size", "graph", "bus, GB/s", "calls", "bus, GB/s", "graph / calls"]
SIZES = tuple(8 * 32**power for power in range(6))  # 8 B to 256 MiB
BUDGET_BYTES, ROUNDS = 1 << 27, 300
_LIMIT_S = 600.0
_TEXT = """\
## Collectives in a graph, and called in a loop, on CPUs

`python bench/collectives/latency.py --write`: microseconds of one collective of float32 on
{ranks} ranks over MPI, in a graph of 2 to 200 of them, and in a loop of mpi4py's calls into the
same arrays. On two cores, the best of the rounds that fit into two seconds. In a graph, large
reductions run in parts of 2 MiB; MPI copies an operand that it gets whole, and the system clears
that copy's pages each time. Two ranks exchange up to 256 KiB each in one message, while MPI's
algorithms copy first.

"""


def measured(
    provider: str,
    ranks: int,
    kinds: Sequence[str],
    sizes: Sequence[int],
    budget_bytes: int = BUDGET_BYTES,
    rounds: int = ROUNDS,
) -> list[dict[str, Any]]:
    """Return the result of `gpu.chain.measure`. Raises `RunError`."""
    asked = {"kinds": list(kinds), "sizes": list(sizes)}
    effort = {"budget_bytes": budget_bytes, "rounds": rounds}
    found: list[dict[str, Any]] = on_ranks(
        "gpu.chain:measure", ranks, _LIMIT_S, provider=provider, **asked, **effort
    )
    return found


def rows_of(found: Sequence[dict[str, Any]], ranks: int) -> list[list[object]]:
    """Return the rows of the table under :data:`HEAD`."""
    rows = list[list[object]]()
    for held in found:
        crossing = held["bytes"] * (ranks - 1) / ranks * (2 if held["kind"] == "AllReduce" else 1)
        cells = list[object]()
        for way in ("graph_s", "calls_s"):
            cells += [f"{1e6 * held[way]:.1f}", f"{crossing / held[way] / 1e9:.3g}"]
        ratio = f"{held['graph_s'] / held['calls_s']:.2f}"
        wrong = "" if held["correct"] else ", wrong result"
        rows.append([held["kind"], ranks, size_text(held["bytes"]), *cells, ratio + wrong])
    return rows


def size_text(size: int) -> str:
    """Return a power of two as text."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 or unit == "MiB":
            break
        size //= 1024
    return f"{size} {unit}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table; return the exit status."""
    given = _parser().parse(argv)
    sizes = [size for size in SIZES if size <= given.largest]
    try:
        found = measured(given.provider, given.ranks, given.kinds, sizes)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    text = _TEXT.format(ranks=given.ranks) + table(HEAD, rows_of(found, given.ranks))
    print(text)
    if given.write:
        write_section("latency", text)
    return 0 if all(held["correct"] for held in found) else 1


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--provider", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--largest", type=int, default=SIZES[-1], metavar="BYTES")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
