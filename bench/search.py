"""Measure the search on files of cost tables: ``python bench/search.py [--limit SECONDS] [FILES]``.

Columns: seconds to the minimum time, the same by elimination in NumPy with the same order of
variables (the yardstick) and the ratio, the gap that the supported points alone certify, seconds to
certify 5 and 2 per cent, then seconds and points of the exact frontier, or the epsilon proven when
the limit came first.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tensoropt.compiler.search import ft
from tensoropt.compiler.search.instance import load_instance
from tensoropt.compiler.search.problem import Floats, Problem

INSTANCES = Path(__file__).parent.parent / "test" / "search" / "instances"
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


def measure(path: Path, limit_s: float, yardstick: bool) -> list[str]:
    """One line of the table."""
    problem = load_instance(path)
    fast, point = timed(lambda: ft.solve_min_time(problem))
    slow, total = timed(lambda: numpy_min_time(problem)) if yardstick else (float("nan"), 0)
    if yardstick and not np.isclose(total, point.time, rtol=1e-12):
        raise SystemExit(f"{path}: NumPy finds {total}, the engine {point.time}")
    five, two = (
        timed(lambda e=e: ft.solve_frontier(problem, epsilon=e, time_limit_s=limit_s))  # type: ignore[misc]
        for e in (0.05, 0.02)
    )
    exact, frontier = timed(lambda: ft.solve_frontier(problem, time_limit_s=limit_s))
    hull = ft.certified_gap(problem)
    done = f"{exact:.2f}" if frontier.epsilon == 0 else f"stopped, {frontier.epsilon:.2%}"
    return [
        path.stem, f"{fast:.4f}", f"{slow:.4f}", f"{slow / fast:.1f}", f"{hull:.2%}",
        _seconds(five), _seconds(two), done, str(len(frontier.points)),
    ]  # fmt: skip


def _seconds(run: tuple[float, Any]) -> str:
    return f"{run[0]:.3f} ({run[1].epsilon:.2%})"


def main() -> None:
    """Print the table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=sorted(INSTANCES.glob("*.npz")))
    parser.add_argument("--limit", type=float, default=30.0, help="seconds per frontier (30)")
    parser.add_argument("--no-yardstick", action="store_true", help="leave out NumPy")
    arguments = parser.parse_args()
    names = [
        "instance",
        "min s",
        "numpy s",
        "ratio",
        "hull gap",
        "5% s",
        "2% s",
        "exact s",
        "points",
    ]
    widths = [16, 8, 8, 6, 9, 16, 16, 16, 7]
    print(" ".join(n.rjust(w) for n, w in zip(names, widths, strict=True)))
    for path in arguments.files:
        line = measure(path, arguments.limit, not arguments.no_yardstick)
        print(" ".join(n.rjust(w) for n, w in zip(line, widths, strict=True)), flush=True)


if __name__ == "__main__":
    main()
