"""Gap of local searches to the optimum: ``python bench/search/local_search.py [FILES]``.

Coordinate descent (`autoddl`) and the Metropolis search (`mcmc`) run with several seeds on files of
cost tables (see `python -m tensoropt.compiler.cli.instance`; default: the instances of the tests).
Columns: vertices, the least time, and for each method the least, median and largest gap to it and
the median processor seconds. ``--write`` puts the table into docs/benchmarks.md.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from sections import write_section

from tensoropt.compiler.cli.instance import load_instance, solve_instance
from tensoropt.compiler.comparison.autoddl import RESTARTS
from tensoropt.compiler.comparison.case import Limits
from tensoropt.compiler.comparison.mcmc import PROPOSALS_PER_NODE
from tensoropt.compiler.search.engine.ft import solve_min_time
from tensoropt.compiler.search.problem.problem import Problem
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["gaps", "table"]

METHODS = ("autoddl", "mcmc")
INSTANCES = Path(__file__).parents[2] / "test" / "search" / "instances"

_TEXT = f"""
## Local searches on PaSE's cost tables

`python bench/search/local_search.py --write`: gaps to the optimum (exact, by the engine) of
coordinate descent with {RESTARTS} starts and a Metropolis walk of {PROPOSALS_PER_NODE} proposals
per vertex: least, median and largest gap over {{seeds}} seeds, and the median processor seconds.
In these tables a vertex is a layer. If the least gap equals the largest, no start of any seed
did better.
"""


def gaps(problem: Problem, method: str, seeds: int) -> tuple[list[float], float]:
    """Return the gap to the optimum for each seed, and the median of the processor seconds."""
    least, found, seconds = solve_min_time(problem).time, [], []
    for seed in range(seeds):
        started = time.process_time()
        found.append(solve_instance(problem, method, Limits(seed)).min_time / least - 1)
        seconds.append(time.process_time() - started)
    return found, statistics.median(seconds)


def _cells(problem: Problem, method: str, seeds: int) -> list[str]:
    found, seconds = gaps(problem, method, seeds)
    spread = (min(found), statistics.median(found), max(found))
    return [" / ".join(f"{gap:.1%}" for gap in spread), f"{seconds:.2f}"]


def table(files: Sequence[Path], seeds: int) -> Iterator[str]:
    """Yield the lines of the table in Markdown."""
    yield "| tables | vertices | least time | " + " | ".join(f"{m} | s" for m in METHODS) + " |"
    yield "|---" * (3 + 2 * len(METHODS)) + "|"
    for path in files:
        problem = load_instance(path)
        cells = [path.stem, str(len(problem.nodes)), f"{solve_min_time(problem).time:.0f}"]
        for method in METHODS:
            cells += _cells(problem, method, seeds)
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table line by line."""
    parser = Parser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="default: the instances of the tests")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    given = parser.parse()
    lines = []
    for line in table(given.files or sorted(INSTANCES.glob("*.npz")), given.seeds):
        lines.append(line)
        print(line, flush=True)
    if given.write:
        write_section("local_search", _TEXT.format(seeds=given.seeds) + "\n" + "\n".join(lines))


if __name__ == "__main__":
    sys.exit(run_command(main))
