"""Cost tables in a file, solved without a model (``python -m`` this module)."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError, did_you_mean
from .ft import solve_frontier
from .problem import EdgeTable, Frontier, NodeTable, Problem
from .random_search import random_choice

__all__ = ["Solved", "load_instance", "main", "solve_instance"]

SEARCHES = ("ft", "random")


@dataclass(frozen=True, eq=False)
class Solved:
    """A frontier, the least time found, and the seconds that solving alone took."""

    frontier: Frontier
    min_time: float
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The result as plain numbers; points are [memory, time] in the units of the file."""
        points = [[point.memory, point.time] for point in self.frontier.points]
        return {
            "min_time": self.min_time,
            "min_memory": points[-1][0],
            "seconds": self.seconds,
            "epsilon": self.frontier.epsilon,
            "points": points,
        }


def load_instance(path: str | Path) -> Problem:
    """Read ``domain[n]``, ``time_v[K_v]``, ``memory_v[K_v]``, ``edges[m,2]``, ``edge_k[K_a,K_c]``.

    Raises UserError when the file is missing, no ``.npz``, or lacks a table.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return _problem({name: arrays[name] for name in arrays.files})
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise UserError(
            f"{path}: not a readable instance, expected an .npz file, got: {error}"
        ) from None
    except KeyError as error:
        raise UserError(
            f"{path}: a table is missing, expected {error.args[0]}, got: none"
        ) from None


def solve_instance(
    problem: Problem,
    search: str = "ft",
    *,
    epsilon: float = 0.0,
    seed: int = 0,
    time_limit_s: float | None = None,
) -> Solved:
    """Solve by ``search``: "ft" for the frontier, "random" for one random choice.

    Raises UserError for an unknown search and for what the search itself refuses.
    """
    if search not in SEARCHES:
        raise UserError(
            f"search: no such search, expected one of {', '.join(SEARCHES)}, "
            f"got: {search}{did_you_mean(search, SEARCHES)}"
        )
    start = time.perf_counter()
    if search == "ft":
        frontier = solve_frontier(problem, epsilon=epsilon, time_limit_s=time_limit_s)
    else:
        frontier = Frontier([problem.cost(random_choice(problem, seed))], float("inf"))
    seconds = time.perf_counter() - start
    return Solved(frontier, frontier.points[0].time, seconds)


def _problem(arrays: dict[str, Any]) -> Problem:
    nodes = [
        NodeTable(arrays[f"time_{v}"], arrays[f"memory_{v}"]) for v in range(len(arrays["domain"]))
    ]
    edges = [
        EdgeTable(int(a), int(b), arrays[f"edge_{k}"]) for k, (a, b) in enumerate(arrays["edges"])
    ]
    return Problem(nodes, edges)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="instance", description=__doc__)
    parser.add_argument("file", type=Path, help="an .npz file of cost tables")
    parser.add_argument("--search", default="ft", help="ft (the default) or random")
    parser.add_argument("--epsilon", type=float, default=0.0, help="0, the default, is exact")
    parser.add_argument("--seed", type=int, default=0, help="of --search random")
    parser.add_argument(
        "--time-limit", type=float, metavar="SECONDS", help="stop early, with a bound"
    )
    parser.add_argument("--format", choices=("table", "json"), default="table")
    return parser.parse_args(argv)


def _print(solved: Solved, form: str) -> None:
    values = solved.as_dict()
    if form == "json":
        values["epsilon"] = values["epsilon"] if np.isfinite(values["epsilon"]) else None
        print(json.dumps(values))
        return
    points = values.pop("points")
    for name, value in values.items():
        print(f"{name:>12} {value:.17g}")
    for memory, at in points:
        print(f"{memory:24.17g} {at:24.17g}")


def main(argv: list[str] | None = None) -> int:
    """Solve one file; prints the frontier, returns the exit status."""
    arguments = _arguments(argv)
    try:
        solved = solve_instance(
            load_instance(arguments.file),
            arguments.search,
            epsilon=arguments.epsilon,
            seed=arguments.seed,
            time_limit_s=arguments.time_limit,
        )
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    _print(solved, arguments.format)
    return 0


if __name__ == "__main__":
    sys.exit(main())
