"""Measure the search on files of cost tables: ``python bench/search.py [--limit SECONDS] [FILES]``.

Columns: seconds to the minimum time; the same by elimination in NumPy with the same order of
variables (the yardstick) and how many times faster the engine is; the gap that the supported
points alone certify. Then, for epsilon 0.05, 0.02, 0.01 and 0: seconds, as a multiple of the
yardstick, and the number of points, or the epsilon proven when the limit came first. Rows "x2.2"
and "x2.8" have as many times the configurations per node: about the sizes on 64 devices.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from wider import widen

from tensoropt.compiler.search import ft
from tensoropt.compiler.search.instance import load_instance
from tensoropt.compiler.search.problem import Floats, Frontier, Problem

INSTANCES = Path(__file__).parent.parent / "test" / "search" / "instances"
EPSILONS = (0.05, 0.02, 0.01, 0.0)
WIDE = (("inception3_p16", 2.2), ("transformer_p16", 2.8))
Factor = tuple[tuple[int, ...], Floats]


def elimination_order(problem: Problem) -> list[int]:
    """The variable with the smallest output table next, as in the engine."""
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
    """Smallest total time by eliminating one variable after the other with broadcasting."""
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
    """Seconds and result; the best of three when a call is quick."""
    seconds = []
    while True:
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
        if len(seconds) == 3 or seconds[-1] > 1:
            return min(seconds), result


def measure(problem: Problem, name: str, limit_s: float) -> list[str]:
    """One line of the table."""
    fast, point = timed(lambda: ft.solve_min_time(problem))
    slow, total = timed(lambda: numpy_min_time(problem))
    if not np.isclose(total, point.time, rtol=1e-12):
        raise SystemExit(f"{name}: NumPy finds {total}, the engine {point.time}")
    hull = f"{ft.certified_gap(problem):.2%}"
    cells = [name, f"{fast:.4f}", f"{slow:.4f}", f"{slow / fast:.1f}", hull]
    return cells + [_frontier(problem, epsilon, limit_s, slow) for epsilon in EPSILONS]


def _frontier(problem: Problem, epsilon: float, limit_s: float, slow: float) -> str:
    def solve() -> Frontier:
        return ft.solve_frontier(problem, epsilon=epsilon, time_limit_s=limit_s)

    seconds, found = timed(solve)
    end = f"{len(found.points)} pts"
    if found.epsilon > epsilon:
        end = f"only {found.epsilon:.2g}"
    return f"{seconds:.3f} {seconds / slow:6.1f}x {end:>10}"


def _problems(files: list[Path], wide: bool) -> Iterator[tuple[str, Problem]]:
    for path in files:
        yield path.stem, load_instance(path)
    for stem, factor in WIDE if wide else ():
        yield f"{stem} x{factor}", widen(load_instance(INSTANCES / f"{stem}.npz"), factor)


def main() -> None:
    """Print the table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="the instances of the tests, and wider")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds per frontier (30)")
    arguments = parser.parse_args()
    names = ["instance", "min s", "numpy s", "faster", "hull gap"]
    names += [f"epsilon {epsilon}" for epsilon in EPSILONS]
    widths = [20, 8, 8, 6, 8, *[26] * len(EPSILONS)]
    print(" ".join(n.rjust(w) for n, w in zip(names, widths, strict=True)), flush=True)
    files = arguments.files or sorted(INSTANCES.glob("*.npz"))
    for name, problem in _problems(files, not arguments.files):
        line = measure(problem, name, arguments.limit)
        print(" ".join(n.rjust(w) for n, w in zip(line, widths, strict=True)), flush=True)


if __name__ == "__main__":
    main()
