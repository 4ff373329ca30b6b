"""Measure the search on files of cost tables: ``python bench/search/engine.py [--write] [FILES]``.

Columns: seconds to the minimum time; the same by elimination in NumPy with the same elimination
order (the reference) and the speedup of the engine; the gap that the supported points alone
certify. Then, for epsilon 0.05, 0.02, 0.01 and 0: seconds, as a multiple of the reference, and the
number of points, or the proven epsilon if the time limit was reached. Rows "x2.2" and "x2.8" have
that many times the configurations per node, about the sizes on 64 devices. Actual files for 64
devices are written by ``bench/search/pase_instances.py``. ``--write`` puts the table into
docs/benchmarks.md.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import numpy as np
from sections import write_section

from search.widened_tables import widen
from tensoropt.compiler.cli.instance import load_instance
from tensoropt.compiler.search.engine import ft
from tensoropt.compiler.search.problem.problem import Floats, Problem, TableFrontier
from tensoropt.runtime.support.flags import Parser, run_command

INSTANCES = Path(__file__).parents[2] / "test" / "search" / "instances"
EPSILONS = (0.05, 0.02, 0.01, 0.0)
_NAMES = ["instance", "min s", "NumPy s", "faster", "hull gap"]
_NAMES += [f"epsilon {epsilon:g}" for epsilon in EPSILONS]
_WIDTHS = [20, 8, 8, 6, 8, *[30] * len(EPSILONS)]
_TEXT = """\
## The search on PaSE's own cost tables

`python bench/search/engine.py --limit {limit:g} --write FILES`, with files that
`bench/search/pase_instances.py` wrote (`_pN`: on N devices), on {cores} cores: seconds to the least
time; the same by elimination in NumPy with the same order of variables, the reference; the gap that
the supported points alone certify; then seconds to the frontier within epsilon, as a multiple of
the reference, and its points, or the epsilon proven at the time limit. All columns of a row are
from one run; each is the best of three if it takes less than a second.

"""
WIDE = (("inception3_p16", 2.2), ("transformer_p16", 2.8))
Factor = tuple[tuple[int, ...], Floats]


def elimination_order(problem: Problem) -> list[int]:
    """Return the engine's order: the variable with the smallest output table next."""
    near: dict[int, set[int]] = {v: set() for v in range(len(problem.nodes))}
    for edge in problem.edges:
        near[edge.a].add(edge.b)
        near[edge.b].add(edge.a)
    sizes = [float(len(node.time_s)) for node in problem.nodes]
    order = []
    while near:
        cells = {v: float(np.prod([sizes[u] for u in near[v]])) for v in near}
        best = min(near, key=lambda v: (cells[v], cells[v] * sizes[v]))
        joined = near.pop(best)
        for u in joined:  # neighbours of an eliminated variable become neighbours of each other
            near[u] = (near[u] | joined) - {best, u}
        order.append(best)
    return order


def numpy_min_time(problem: Problem) -> float:
    """Return the smallest total time, by variable elimination with NumPy broadcasting."""
    factors: list[Factor] = [((v,), node.time_s) for v, node in enumerate(problem.nodes)]
    factors += [((edge.a, edge.b), edge.time_s) for edge in problem.edges]
    for var in elimination_order(problem):
        bucket = [factor for factor in factors if var in factor[0]]
        factors = [factor for factor in factors if var not in factor[0]] + [_reduced(bucket, var)]
    return float(sum(float(table) for _, table in factors))


def _reduced(bucket: list[Factor], var: int) -> Factor:
    scope = tuple(sorted({v for names, _ in bucket for v in names} - {var}))
    axes = (*scope, var)
    total: Any = 0.0
    for names, table in sorted(bucket, key=lambda factor: factor[1].size):
        order = sorted(range(len(names)), key=lambda d: axes.index(names[d]))
        shape = [table.shape[names.index(v)] if v in names else 1 for v in axes]
        total = total + table.transpose(order).reshape(shape)
    return scope, total.min(axis=-1)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return seconds and result of a call; the best of three if it is quick."""
    seconds = []
    while True:
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
        if len(seconds) == 3 or seconds[-1] > 1:
            return min(seconds), result


def measure(problem: Problem, name: str, limit_s: float) -> list[str]:
    """Return a line of the table."""
    fast, point = timed(lambda: ft.solve_min_time(problem))
    slow, total = timed(lambda: numpy_min_time(problem))
    if not np.isclose(total, point.time, rtol=1e-12):
        raise SystemExit(f"{name}: NumPy finds {total}, the engine {point.time}")
    hull = f"{ft.certified_gap(problem):.2%}"
    cells = [name, f"{fast:.4f}", f"{slow:.4f}", f"{slow / fast:.1f}", hull]
    return cells + [_frontier(problem, epsilon, limit_s, slow) for epsilon in EPSILONS]


def _frontier(problem: Problem, epsilon: float, limit_s: float, slow: float) -> str:
    def solve() -> TableFrontier:
        return ft.solve_frontier(problem, epsilon=epsilon, time_limit_s=limit_s)

    seconds, found = timed(solve)
    end = f"{len(found.points)} points"
    if found.epsilon > epsilon:
        end = f"only {found.epsilon:.2g}"
    return f"{seconds:.3f} ({seconds / slow:.3g}x), {end}"


def _problems(files: list[Path], wide: bool) -> Iterator[tuple[str, Problem]]:
    for path in files:
        yield path.stem, load_instance(path)
    for stem, factor in WIDE if wide else ():
        yield f"{stem} x{factor}", widen(load_instance(INSTANCES / f"{stem}.npz"), factor)


def main() -> None:
    """Print the table line by line."""
    parser = Parser(description=__doc__)
    parser.add_argument(
        "files", nargs="*", type=Path, help="default: the instances of the tests, also widened"
    )
    parser.add_argument("--limit", type=float, default=30.0, help="seconds per frontier (30)")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    arguments = parser.parse()
    print(_padded(_NAMES), flush=True)
    files = arguments.files or sorted(INSTANCES.glob("*.npz"))
    rows = []
    for name, problem in _problems(files, not arguments.files):
        rows.append(measure(problem, name, arguments.limit))
        print(_padded(rows[-1]), flush=True)
    if arguments.write:
        text = _TEXT.format(limit=arguments.limit, cores=os.cpu_count())
        write_section("search", text + _markdown(rows))


def _padded(cells: list[str]) -> str:
    return " ".join(cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True))


def _markdown(rows: list[list[str]]) -> str:
    lines = [_NAMES, ["---"] * len(_NAMES), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    sys.exit(run_command(main))
