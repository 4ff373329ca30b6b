"""Solver for cost tables in a file, without a model (``python -m`` this module)."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensoropt.compiler.api.request import make_request
from tensoropt.compiler.cli.arguments import add_option
from tensoropt.compiler.cli.output import write_text
from tensoropt.compiler.comparison.case import Case, Limits
from tensoropt.compiler.comparison.registry import METHODS, load_method, run_method, takers
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.report.notes import interruption
from tensoropt.compiler.search.engine.control import Control, Status
from tensoropt.compiler.search.problem.problem import EdgeTable, NodeTable, Problem, TableFrontier
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.options import Interface, options_of
from tensoropt.compiler.support.progress import Progress
from tensoropt.runtime.support.command import INTERRUPTED
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.runtime.support.places import Input

__all__ = ["Solved", "build_parser", "load_instance", "main", "solve_instance"]


@dataclass(frozen=True, eq=False)
class Solved:
    """A frontier, and the seconds of the solve alone."""

    frontier: TableFrontier
    seconds: float

    @property
    def min_time(self) -> float:
        """The least time of the points."""
        return self.frontier.points[0].time

    def as_dict(self) -> dict[str, Any]:
        """The result as plain numbers; points are [memory, time] in the units of the file."""
        points = [[point.memory, point.time] for point in self.frontier.points]
        bounds = {"epsilon": _finite(self.frontier.epsilon)}
        if bounds["epsilon"] is None:
            bounds["time_epsilon"] = _finite(self.frontier.time_bound)
        return {
            "min_time": self.min_time,
            "min_memory": points[-1][0],
            "seconds": self.seconds,
            **bounds,
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


def solve_instance(problem: Problem, search: str = "ft", limits: Limits | None = None) -> Solved:
    """Solve with ``search``, one of ``methods.registry.METHODS``.

    Raises UserError for an unknown search, and for problems that the search refuses.
    """
    load_method(search)  # import it before the clock starts
    start = time.perf_counter()
    frontier = run_method(search, Case(problem), limits or Limits())
    return Solved(frontier, time.perf_counter() - start)


def _problem(arrays: dict[str, Any]) -> Problem:
    nodes = [
        NodeTable(arrays[f"time_{v}"], arrays[f"memory_{v}"]) for v in range(len(arrays["domain"]))
    ]
    edges = [
        EdgeTable(int(a), int(b), arrays[f"edge_{k}"]) for k, (a, b) in enumerate(arrays["edges"])
    ]
    return Problem(nodes, edges)


_MODELLESS = ", ".join(name for name, method in METHODS.items() if not method.needs_model)
_OPTIONS = {
    "search": f"one of {_MODELLESS} (default ft)",
    "epsilon": "of ft: 0, the default, is exact",
    "seed": f"of {', '.join(takers('seed'))} (default 0)",
    "search_time": f"of {', '.join(takers('time_limit_s'))}: stop early, with a bound",
}
"""Options of a search that apply to tables, and their help here."""


def build_parser() -> Parser:
    parser = Parser(prog="instance", description=__doc__)
    parser.add_argument("file", type=Input(), help="an .npz file of cost tables")
    for name, help in _OPTIONS.items():
        add_option(parser, options_of(Request)[name], help)
    parser.add_argument(
        "--progress",
        action="store_true",
        help="report progress on stderr even if it is not a terminal",
    )
    parser.add_argument("--format", choices=("table", "json"), default="table")
    return parser


def _finite(bound: float | None) -> float | None:
    return bound if bound is not None and math.isfinite(bound) else None


def _print(solved: Solved, form: str) -> None:
    values = solved.as_dict()
    if form == "json":
        print(json.dumps(values))
        return
    points = values.pop("points")
    for name, value in values.items():
        print(f"{name:>12} {'none' if value is None else format(value, '.17g')}")
    write_text(None, "".join(f"{memory:24.17g} {at:24.17g}\n" for memory, at in points))


def main(argv: list[str] | None = None) -> int:
    """Solve one file, print the frontier, and return the exit status.

    Ctrl-C prints the results so far, with their bound; the status is then 130.
    """
    return run_command(lambda: _run(build_parser().parse(argv)))


def _run(arguments: argparse.Namespace) -> int:
    given = {name: getattr(arguments, name) for name in _OPTIONS}
    request = make_request(given, Interface.COMMAND)
    problem = load_instance(arguments.file)
    say = Progress(asked=arguments.progress)
    started = time.monotonic()

    def watch(status: Status) -> None:
        say(f"{arguments.file.name}: {status}, {time.monotonic() - started:.1f} s")

    limits = Limits(
        request.seed or 0,
        request.epsilon or 0.0,
        request.search_time,
        control=Control(on_interrupt="return", watch=watch),
    )
    try:
        solved = solve_instance(problem, request.search, limits)
    finally:
        say.clear()
    _print(solved, arguments.format)
    if not solved.frontier.interrupted:
        return 0
    sys.stdout.flush()
    print(interruption(_finite(solved.frontier.epsilon)), file=sys.stderr)
    return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
