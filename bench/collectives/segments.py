"""Time plans as whole graphs, and cut into pieces at their collectives, as other systems run them.

    python bench/collectives/segments.py                    64 products and three models, on the CPU
    python bench/collectives/segments.py --provider cuda    on GPUs (for --write there, see
                                                            bench/gpu/check.py)

There are four ways to run a step on ranks of one thread each: the graph, with collectives in it;
pieces between them as sessions, with a session for each collective; the same with all-reduces
called from Python (MPI, or NCCL and a wait for it); and the pieces alone, without collectives,
which is wrong but shows the cost of cutting. All of them read and write arrays that stay in place.
The ways take turns; a figure is the best turn's median step of the slowest rank.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from gpu.failure import RunError
from gpu.models import SIZES, Zoo, write_plan
from gpu.products import write_products
from gpu.ranks import on_ranks
from gpu.setting import table
from sections import write_section

from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["HEAD", "PRODUCTS", "Found", "main", "measured", "rows_of"]

PRODUCTS = "products"
"""A chain of small matrix products; the other names are models of a zoo."""

Found = tuple[str, dict[str, Any]]

HEAD = ["plan", "ranks", "collectives", "graph", "sessions", "calls", "without", "sessions / graph"]
_TEXT = """\
## Collectives in the graph, or between graphs, on CPUs

`python bench/collectives/segments.py --write`: milliseconds per step on {ranks} ranks of one
thread, over MPI. *graph*: the unchanged plan; *sessions*: cut at its collectives, with a session
for each; *calls*: all-reduces called from Python instead; *without*: the pieces alone. Two
cores, shared with other work: the best of {rounds} turns. Largest difference of an output:
{difference:.2g}.

"""


def measured(
    zoo: Zoo, name: str, provider: str, ranks: int, device: str, steps: int, rounds: int
) -> Found:
    """Return a plan's label and the result of `gpu.piecewise.measure`. Raises `RunError`."""
    if name == PRODUCTS:
        plan, label = write_products(zoo.folder / name, ranks), "64 products"
    else:
        # The expert method splits text models only.
        way = "leanest" if name == zoo.names[0] else "expert"
        plan, label = write_plan(zoo.path(name), ranks, way, device, zoo.folder), f"{name}, {way}"
    asked = {"plan": str(plan), "provider": provider, "steps": steps, "rounds": rounds}
    return label, on_ranks("gpu.piecewise:measure", ranks, **asked)


def rows_of(found: Sequence[Found], ranks: int) -> list[list[object]]:
    """Return the rows of the table under :data:`HEAD`."""
    rows = list[list[object]]()
    for name, held in found:
        ways = held["ways"]
        times = [f"{1e3 * ways[way]:.3f}" for way in ("graph", "sessions", "calls", "silent")]
        ratio = f"{ways['sessions'] / ways['graph']:.2f}"
        rows.append([name, ranks, held["collectives"], *times, ratio])
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table; return the exit status."""
    given = _parser().parse(argv)
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        zoo = Zoo(given.size, Path(folder))
        names = [PRODUCTS, *zoo.names]
        try:
            where = (given.provider, given.ranks, given.device)
            turns = given.steps, given.rounds
            found = [measured(zoo, name, *where, *turns) for name in names]
        except RunError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    difference = max(held["difference"] for _, held in found)
    text = _TEXT.format(ranks=given.ranks, rounds=given.rounds, difference=difference)
    text += table(HEAD, rows_of(found, given.ranks))
    print(text)
    if given.write:
        write_section("segments", text)
    return 0


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--provider", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--device", default="h200", help="device that plans are made for")
    parser.add_argument("--steps", type=int, default=4, help="steps of a turn")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--size", choices=SIZES, default="half", help="size of the models")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
