"""Planning with tensoropt-opt: a frontier, a comparison of searches, or a plan directory."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tensoropt.compiler.api.fitting import Asked, find_fitting
from tensoropt.compiler.api.frontier import Frontier, Interrupted, Point
from tensoropt.compiler.api.model import Model
from tensoropt.compiler.api.program import Program, Source
from tensoropt.compiler.api.training import Training
from tensoropt.compiler.cli.output import write_text
from tensoropt.compiler.cli.planning_flags import compared_searches, read_request, read_step
from tensoropt.compiler.cli.standard import check_standard, write_standard
from tensoropt.compiler.cli.tracing import tracing
from tensoropt.compiler.cli.training_flags import read_training
from tensoropt.compiler.comparison.compare import Compared
from tensoropt.compiler.exporter.plan.writer import check_replaceable
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.planning.service import is_service
from tensoropt.compiler.report.comparison import (
    Comparison,
    comparison_csv,
    comparison_json,
    comparison_table,
)
from tensoropt.compiler.report.frontier import FrontierReport
from tensoropt.compiler.report.machine import frontier_csv, frontier_json
from tensoropt.compiler.report.notes import interruption
from tensoropt.compiler.report.table import frontier_table
from tensoropt.compiler.search.frontier.points import split_name
from tensoropt.compiler.search.problem.problem import DoesNotFitError
from tensoropt.compiler.support.collection import without_collection
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.progress import Progress
from tensoropt.compiler.support.units import format_bytes, format_seconds
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.runtime.plan.dims import parse_ranges
from tensoropt.runtime.support.command import INTERRUPTED, begun_s

__all__ = ["run_planning"]


def run_planning(args: argparse.Namespace) -> int:
    """Search, print the requested reports, and write the plan to ``-o``."""
    request = read_request(args)
    step, training = read_step(args, request), read_training(args)
    dims = parse_ranges(args.dim)
    _check_places(args)
    say = Progress(asked=args.progress)
    with tracing(args) as options, _clearing(say), without_collection():
        say(f"reading {args.input}")
        if args.target is not None:
            options["target"] = args.target
        model = Model(Path(args.input), dims, args.weights, options)
        return _Planning(args, request, step, training, model, say).run()


@contextmanager
def _clearing(say: Progress) -> Iterator[None]:
    try:
        yield
    finally:
        say.clear()


def _check_places(args: argparse.Namespace) -> None:
    """Refuse outputs that cannot be written, before any time is spent."""
    if args.plot is not None:
        from tensoropt.compiler.report.plot import check_plot_path

        check_plot_path(args.plot)
    if args.report is not None:
        from tensoropt.compiler.report.html.report import check_report_path

        check_report_path(args.report)
    check_standard(args)
    if args.netron is not None:
        from tensoropt.compiler.report.netron import check_netron_path

        check_netron_path(args.netron, args.weights or Path(args.input))
    if args.output is not None:
        if not args.input.endswith(".onnx"):
            Source(Path(args.input), None, args.weights).weights_for(args.output)
        if str(args.output) == "-":
            raise UserError("-o -: a plan is a folder, expected its name")
        if args.objective == "profile":
            from tensoropt.compiler.pipeline.family import check_family_replaceable

            check_family_replaceable(args.output)
        else:
            check_replaceable(args.output)


_OF_A_POINT = ("output", "pick", "explain", "report", "netron", "annotations", "dtensor")
"""Flags that need a point that fits."""


@dataclass
class _Planning:
    """One request, from a model to the printed and written results."""

    args: argparse.Namespace
    request: Request
    step: BuildTrainingStepPass | None
    training: Training | None
    model: Model
    say: Progress

    def run(self) -> int:
        """Return the exit status; notes come last, so that an error is one line."""
        if self._is_searched():
            self.model.compile(self.args.output, self.say)
            return 0
        if is_service(self.args.objective):
            from tensoropt.compiler.cli.service_mode import run_service

            return run_service(self.model, self.args, self.request, self.say)
        if self.args.output is not None:
            self.model.check_weights(self.args.output, trains=self.args.train)
        status, notes = self._plan(
            self.model.program(self.step, self.say, self.request.description)
        )
        self._tell(notes)
        return status

    def _is_searched(self) -> bool:
        """Return whether the text has strategies; refuse flags of phases that it has passed."""
        trains = self.args.train
        planned = trains or "planning" in self.args.given or self.args.output is None
        if not planned and self.model.is_searched():
            return True
        self.model.check_searchable(trains=trains)
        profiles = self.args.objective == "profile" and self.args.output is not None
        if profiles and not self.model.builds_steps(trains=trains):
            raise UserError(
                f"-o {self.args.output}: a family is of plans for training, "
                "expected --train as well, or no -o"
            )
        return False

    def _plan(self, program: Program) -> tuple[int, Sequence[str]]:
        """Return the exit status, and notes on the program."""
        if self.args.objective == "profile":
            from tensoropt.compiler.cli.profile_mode import run_profile

            with program.compilation.timed("profile"):
                return run_profile(program, self.args, self.request, self.say), program.notes
        if self.args.compare is not None:
            with program.compilation.timed("compare"):
                status = _print_comparison(self.args, self.request, program, self.say)
                return status, program.notes
        return self._search()

    def _search(self) -> tuple[int, Sequence[str]]:
        """Search, and further if nothing fits; notes on a frontier precede its error."""
        forms = self.model.forms([Model(path, self.model.dims) for path in self.args.also])
        asked = Asked(self.request, self.training)
        try:
            frontier = find_fitting(forms, asked, self.say, begun_s())
        except Interrupted as stopped:
            self._tell(stopped.frontier.search_notes)
            status = _print_interrupted(self.args, self.request, stopped.frontier)
            return status, stopped.frontier.program_notes
        except DoesNotFitError as error:
            self._tell(() if error.frontier is None else error.frontier.search_notes)
            raise
        self._tell((*frontier.search_notes, *frontier.lacking))
        try:
            point = frontier.pick(self.request.picked)
        except DoesNotFitError as error:
            status = self._show_unfit(frontier, error)
        else:
            status = self._write(frontier, point)
        return status, frontier.program_notes

    def _show_unfit(self, frontier: Frontier, error: DoesNotFitError) -> int:
        """Print a requested table of points that all are too large; no other output is possible."""
        if not self.args.pareto:
            raise error
        _print_frontier(self.args, frontier.whole.facts())
        if self.args.plot is not None:
            frontier.whole.plot(self.args.plot)
        sys.stdout.flush()
        if any(self.args.given.get(name) for name in _OF_A_POINT):
            raise error
        self._tell([f"note: {error}"])
        return 0

    def _write(self, frontier: Frontier, point: Point) -> int:
        """Print and write ``point`` of ``frontier``, or all of it."""
        whole, notes = frontier.whole.facts(point), point.notes
        self._draw(frontier, point)
        if self.args.explain:
            _print_explanation(self.args, point)
        if self.args.pareto or not (self.args.explain or self.args.output is not None):
            _print_frontier(self.args, replace(whole, narrowed=not self.args.pareto))
        self._tell(write_standard(self.args, point))
        if self.args.output is not None:
            point.write(self.args.output, self.say)
            self.say.clear()
            if self.args.format in (None, "table"):
                print(_describe_written(self.args.output, frontier, point))
                sys.stdout.flush()
        self._tell(notes)
        return 0

    def _draw(self, frontier: Frontier, point: Point) -> None:
        """Write the requested plot, report and Netron model."""
        if self.args.plot is not None:
            self.say(f"drawing {self.args.plot}")
            frontier.whole.plot(self.args.plot, point)
        if self.args.report is not None:
            self.say(f"writing {self.args.report}")
            frontier.report(self.args.report, point)
        if self.args.netron is not None:
            self.say(f"writing {self.args.netron}")
            self._tell(_netron_notes(self.args.netron, *point.netron(self.args.netron)))
        self.say.clear()

    def _tell(self, notes: Iterable[str]) -> None:
        self.say.clear()
        for line in notes:
            print(line, file=sys.stderr)


def _describe_written(folder: Path, frontier: Frontier, point: Point) -> str:
    """Return the line on the point that was written."""
    marks = f" ({', '.join(point.marks)})" if point.marks else ""
    figures = f"{format_seconds(point.time_s)}, {format_bytes(point.process_bytes)} per device"
    of = f"point {point.index} of {len(frontier.whole)}{marks}, {split_name(point.found)}"
    return f"plan: {folder}: {of}: {figures}"


def _netron_notes(path: Path, found: int, nodes: int) -> Iterator[str]:
    """Yield the note on nodes that are not in the plan."""
    if found < nodes:
        yield f"note: {path}: {found} of {nodes} nodes have metadata, the plan has no others"


def _print_interrupted(args: argparse.Namespace, request: Request, frontier: Frontier) -> int:
    """Print the results before Ctrl-C; no file is written for a partial result."""
    chosen = None
    if not args.pareto and args.output is None:
        with suppress(DoesNotFitError):  # the table then has all points
            chosen = frontier.limit(request.memory_bytes).pick(request.picked)
    report = frontier.facts(chosen, narrowed=chosen is not None)
    _print_frontier(args, report)
    sys.stdout.flush()
    wanted = (args.output, args.plot, args.report, args.netron)
    unwritten = [str(path) for path in wanted if path is not None]
    missing = f"; not written: {', '.join(unwritten)}" if unwritten else ""
    line = interruption(report.epsilon, left_out=bool(report.left_out))
    print(f"{line}{missing}", file=sys.stderr)
    return INTERRUPTED


def _print_explanation(args: argparse.Namespace, point: Point) -> None:
    """Print the explanation of ``point``."""
    explained = point.explain()
    if args.format == "json":
        write_text(None, json.dumps(explained.to_json(), indent=2) + "\n")
    else:
        write_text(None, explained.text())


def _print_frontier(args: argparse.Namespace, frontier: FrontierReport) -> None:
    if args.format == "json":
        write_text(None, frontier_json(frontier))
    elif args.format == "csv":
        write_text(None, frontier_csv(frontier))
    else:
        write_text(None, frontier_table(frontier, colour=sys.stdout.isatty()))


def _print_comparison(
    args: argparse.Namespace, request: Request, program: Program, say: Progress
) -> int:
    rows = program.compare(request, compared_searches(args), say)
    say.clear()
    name = Path(args.input).name
    comparison = Comparison(name, request.description.name, request.devices, rows)
    if args.plot is not None:
        from tensoropt.compiler.report.plot import plot_comparison

        plot_comparison(comparison, args.plot)
    if args.format == "json":
        write_text(None, comparison_json(comparison))
    elif args.format == "csv":
        write_text(None, comparison_csv(comparison))
    else:
        write_text(None, comparison_table(comparison, colour=sys.stdout.isatty()))
    _check_any(rows)
    return 0


def _check_any(rows: Sequence[Compared]) -> None:
    """Raise UserError after a printed comparison in which no search found a plan."""
    if all(row.point is None for row in rows):
        sys.stdout.flush()
        raise UserError(
            "--compare: no search found a plan, for the reasons printed; "
            "expected more memory or devices, or other searches"
        )
