"""Every search method on every benchmark graph, compared with frontier tracking.

    python bench/search/methods.py             15 graphs on 4, 8, 16, 32, 64 devices
    python bench/search/methods.py gpt3_13b --devices 64 --methods ft expert --meshes all
    python bench/search/methods.py --write     tables into docs/benchmarks.md too

There is one mesh per number of devices, as square as possible (2x2, 2x4, 4x4, 4x8, 8x8): it has the
axes that expert schemes need, at a tenth of the work of all meshes. `--meshes all` searches all
meshes. A graph is prepared once, and its tables are built once per mesh. Seconds are the processor
time, over all threads, of the search and of costing its points: the figure to read on a busy
machine. Times and bytes are costs of the emitted graphs, not of the tables of the search.

Two checks run for each point (t, m) of another method: the fastest point of `ft` takes at most t;
and some point of `ft` takes at most (1 + e) t and (1 + e) m, with e the bound that `ft` proved. The
last line is `N checked, M violated`.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from compilation.compile_time import square
from graphs.catalog import MODELS
from search_graphs import model_graph
from sections import write_section

from tensoropt.compiler.comparison.compare import Attempt, attempt
from tensoropt.compiler.comparison.program import count_variables
from tensoropt.compiler.comparison.registry import solver
from tensoropt.compiler.cost.device import Device, load_device
from tensoropt.compiler.layout.mesh import factorisations
from tensoropt.compiler.program.graph import Graph
from tensoropt.compiler.search.frontier.search import (
    FrontierPoint,
    FrontierResult,
    SearchOptions,
    distinct_meshes,
)
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.support.units import format_bytes, format_seconds
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["METHODS", "Case", "excess", "methods_table", "run_case", "violations"]

METHODS = ("ft", "pase", "data-parallel", "expert", "autoddl", "mcmc", "ilp", "random")
_ROUNDING = 1e-9
_TEXT = """
## Every method on every graph

`python bench/search/methods.py --write`: the fastest plan of frontier tracking (`ft`), per device,
the bound that its frontier reached, and the relative time of the fastest plan of each other method,
all costed as the graphs that they lead to. A dash: the method refuses, or the program of `ilp` is
too large.

{budget}

{table}

Seconds are processor time of the search and of costing its points, without building tables.

{summary}

For each point that another method found, the fastest of `ft` is to be no slower, and some point of
`ft` within the reached epsilon in time and in memory: {checked} checked, {violated} violated. The
second is not checked where the epsilon is "none": time was over before `ft` had a bound.
"""


@dataclass
class Case:
    """A graph on a number of devices, and the result of each method."""

    graph: str
    devices: int
    mesh: str
    attempts: dict[str, Attempt] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)

    @property
    def frontier(self) -> FrontierResult | None:
        held = self.attempts.get("ft")
        return held.result if held else None

    def ratio(self, method: str) -> float | None:
        """Return the time of a method's fastest point over the time of ``ft``'s fastest."""
        found = self.attempts[method].result if method in self.attempts else None
        if found is None or self.frontier is None:
            return None
        return found.points[0].time_s / self.frontier.points[0].time_s


def excess(point: FrontierPoint, frontier: FrontierResult) -> float:
    """Return the least e so that a point of ``frontier`` is within (1 + e) in both costs."""
    reached = (
        max(held.time_s / point.time_s, held.memory_bytes / point.memory_bytes)
        for held in frontier.points
    )
    return min(reached) - 1


def violations(case: Case) -> Iterator[tuple[str, FrontierPoint, str]]:
    """Yield (method, point, error or "") for both checks of every point.

    The second check is skipped if ``ft`` ran out of time before it had a bound.
    """
    frontier = case.frontier
    if frontier is None:
        return
    least, bound = frontier.points[0].time_s, frontier.epsilon
    for method, held in case.attempts.items():
        for point in held.result.points if held.result and method != "ft" else ():
            slower = least / point.time_s - 1
            yield method, point, f"ft is {slower:.3%} slower" if slower > _ROUNDING else ""
            if bound is None:
                continue
            above = excess(point, frontier)
            wrong = above > bound + _ROUNDING
            yield method, point, f"ft is {above:.2%} above, bound {bound:.2%}" if wrong else ""


def run_case(
    name: str, graph: Graph, meshes: Sequence[Mesh], device: Device, given: argparse.Namespace
) -> Case:
    """Run the methods on one graph and number of devices."""
    kept = distinct_meshes(meshes, device)
    tables = [MeshTables(graph, mesh, device) for mesh in kept]
    columns = max(count_variables(held.problem) for held in tables)
    case = Case(name, kept[0].size, str(kept[0]) if len(kept) == 1 else "all")
    for method in given.methods:
        if method == "ilp" and columns > given.columns:
            refused = f"{columns} columns, more than --columns"
            case.attempts[method] = Attempt(method, None, 0.0, refused)
            continue
        options = SearchOptions(solver(method), given.epsilon, given.limit, points=given.points)
        started = time.process_time()
        case.attempts[method] = attempt(method, tables, options)
        case.cpu_s[method] = time.process_time() - started
    return case


def _print(case: Case) -> tuple[int, int]:
    """Print a case and its violations; return the numbers of checks and of violations."""
    for method, held in case.attempts.items():
        print(f"{case.graph:17} {case.devices:3} {case.mesh:>5} {_line(case, method, held)}")
    checks = list(violations(case))
    wrong = [check for check in checks if check[2]]
    for method, point, text in wrong:
        memory = format_bytes(point.memory_bytes)
        print(f"  VIOLATED {method} ({format_seconds(point.time_s)}, {memory}): {text}")
    sys.stdout.flush()
    return len(checks), len(wrong)


def _line(case: Case, method: str, held: Attempt) -> str:
    seconds = f"{case.cpu_s.get(method, 0.0):7.2f} s"
    if held.result is None:
        return f"{method:14} {'-':>11} {'-':>11} {seconds}        - refused: {held.refused[:90]}"
    point, ratio = held.result.points[0], case.ratio(method)
    figures = f"{format_seconds(point.time_s):>11} {format_bytes(point.memory_bytes):>11}"
    rest = f"{len(held.result.points)} points"
    if held.result.epsilon is not None:
        rest += f", epsilon {held.result.epsilon:.2%}"
    return f"{method:14} {figures} {seconds} {_number(ratio):>8} {rest}"


def _number(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}" if ratio < 100 else f"{ratio:.0f}"


def methods_table(cases: Sequence[Case], methods: Sequence[str]) -> str:
    """Return a Markdown row per graph and number of devices: ``ft``, and ratios to it."""
    others = [method for method in methods if method != "ft"]
    titles = ["graph", "mesh", "ft", "memory", "epsilon", *others]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for case in cases:
        figures = ["-", "-", "-"]
        if case.frontier is not None:
            point = case.frontier.points[0]
            figures = [format_seconds(point.time_s), format_bytes(point.memory_bytes)]
            epsilon = case.frontier.epsilon
            figures += ["none" if epsilon is None else f"{epsilon:.1%}"]
        cells = [case.graph, case.mesh, *figures, *(_number(case.ratio(m)) for m in others)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _summary(cases: Sequence[Case], methods: Sequence[str]) -> str:
    lines = [
        "| method | found | reached ft | ratio, geometric mean | worst | seconds, median | most |",
        "|---|---|---|---|---|---|---|",
    ]
    for method in methods:
        seconds = [case.cpu_s[method] for case in cases if case.attempts[method].result]
        ratios = [ratio for case in cases if (ratio := case.ratio(method)) is not None]
        if ratios:
            mean = math.exp(statistics.mean(map(math.log, ratios)))
            equal = sum(ratio < 1 + 1e-6 for ratio in ratios)
            found = f"{len(seconds)} of {len(cases)}"
            times = f"{statistics.median(seconds):.2f} | {max(seconds):.2f}"
            shown = f"{equal} | {mean:.3f} | {_number(max(ratios))}"
            lines.append(f"| {method} | {found} | {shown} | {times} |")
    return "\n".join(lines)


def _budget(given: argparse.Namespace) -> str:
    from tensoropt.compiler.comparison.autoddl import RESTARTS
    from tensoropt.compiler.comparison.mcmc import PROPOSALS_PER_NODE

    return (
        f"Device {given.device}; epsilon {given.epsilon:g}, {given.points} points and at most "
        f"{given.limit:g} s for `ft`; {RESTARTS} starts of `autoddl`; {PROPOSALS_PER_NODE} "
        f"proposals per node for `mcmc`; {given.limit:g} s and programs of at most "
        f"{given.columns} columns for `ilp`; one random choice."
    )


def _cases(given: argparse.Namespace) -> Iterator[Case]:
    device = load_device(given.device)
    for name in given.models or MODELS:
        graph = model_graph(name)
        for count in given.devices:
            meshes = [square(count)] if given.meshes == "square" else list(factorisations(count))
            yield run_case(name, graph, meshes, device, given)


def main() -> int:
    """Print every case as it finishes; the exit status is 1 if a check failed."""
    given = _parser().parse()
    print(_budget(given), flush=True)
    cases, checked, violated = [], 0, 0
    for case in _cases(given):
        cases.append(case)
        one, wrong = _print(case)
        checked, violated = checked + one, violated + wrong
    print(_summary(cases, given.methods))
    print(f"{checked} checked, {violated} violated")
    if given.write:
        budget = textwrap.fill(_budget(given), 100)
        parts = {"table": methods_table(cases, given.methods), "budget": budget}
        counts = {"checked": checked, "violated": violated}
        summary = _summary(cases, given.methods)
        write_section("methods", _TEXT.format(**parts, **counts, summary=summary))
    return 1 if violated else 0


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], help="default all")
    parser.add_argument("--devices", type=int, nargs="+", default=[4, 8, 16, 32, 64])
    parser.add_argument("--device", default="h200", help="type of the devices, as in tensoropt-opt")
    parser.add_argument("--meshes", choices=("square", "all"), default="square")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--epsilon", type=float, default=0.05, help="epsilon of ft")
    parser.add_argument("--points", type=int, default=100, help="points of ft per mesh")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds of ft and of ilp")
    parser.add_argument("--columns", type=int, default=50_000, help="largest program of ilp")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
