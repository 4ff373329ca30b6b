"""The person's side of tensoropt-opt: a frontier, a comparison, a plan directory."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tensoropt.compiler.cli.arguments import EMIT, wants_planning
from tensoropt.compiler.cli.guard import INTERRUPTED
from tensoropt.compiler.cli.output import write_text
from tensoropt.compiler.cli.planning_flags import compared, read_request, read_step
from tensoropt.compiler.cli.profile_mode import run_profile
from tensoropt.compiler.cli.tracing import tracing
from tensoropt.compiler.cost import bodies
from tensoropt.compiler.exporter.plan.describe import check_ends
from tensoropt.compiler.exporter.plan.writer import check_replaceable
from tensoropt.compiler.importer.dimensions import open_dims
from tensoropt.compiler.pipeline.driver import compile_plan, loaded
from tensoropt.compiler.pipeline.phases import Compilation
from tensoropt.compiler.pipeline.text import said_of
from tensoropt.compiler.report.comparison import (
    Comparison,
    comparison_csv,
    comparison_json,
    comparison_table,
)
from tensoropt.compiler.report.frontier import FrontierReport
from tensoropt.compiler.report.machine import frontier_csv, frontier_json
from tensoropt.compiler.report.notes import (
    endings,
    interruption,
    omissions,
    open_sizes,
    open_turns,
    pins_line,
)
from tensoropt.compiler.report.plot import check_plot_path, plot_comparison, plot_frontier
from tensoropt.compiler.report.splitting import splitting_notes
from tensoropt.compiler.report.table import frontier_table
from tensoropt.compiler.report.training import training_notes
from tensoropt.compiler.search.frontier.objectives import compare
from tensoropt.compiler.search.frontier.points import pick_point
from tensoropt.compiler.search.frontier.request import Request, fitting
from tensoropt.compiler.search.frontier.steps import Graphs, read_graphs
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.progress import Progress
from tensoropt.compiler.training.cut import argument_names, copy_of
from tensoropt.compiler.training.spec import check_patterns
from tensoropt.dialects.topt.keys import TRAINING
from tensoropt.passes.base import PassError
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.passes.pipeline import passed
from tensoropt.passes.search_strategies import SearchReport, SearchStrategiesPass
from tensoropt.runtime.plan.dims import parse_dims

if TYPE_CHECKING:
    from tensoropt.compiler.search.frontier.search import FrontierPoint, FrontierResult
    from tensoropt.dialects.mlir import ir

__all__ = ["run_planning"]


def run_planning(args: argparse.Namespace) -> int:
    """Search, print what was asked for, and write the plan where ``-o`` says."""
    request = read_request(args)
    step = read_step(args, request)
    dims = parse_dims(args.dim)
    _check_places(args)
    say = Progress(asked=args.progress)
    path, text = Path(args.input), None
    try:
        with tracing(args) as options, _cleared(say):
            report = SearchReport(say, prices_pins=True)
            options["search"] = SearchStrategiesPass.of(request, report)
            compilation = Compilation(args.train, step or BuildTrainingStepPass(), **options)
            say(f"reading {args.input}")
            module, text = loaded(path, dims, training=args.train)
            planning = _Planning(args, request, compilation, report, say)
            return planning.run(module)
    except PassError as error:
        raise said_of(path, text, error) from error


@contextmanager
def _cleared(say: Progress) -> Iterator[None]:
    try:
        yield
    finally:
        say.clear()


def _check_places(args: argparse.Namespace) -> None:
    """Refuse what could not be written in the end, before any time is spent."""
    if args.plot is not None:
        check_plot_path(args.plot)
    if args.report is not None:
        from tensoropt.compiler.report.html.report import check_report_path

        check_report_path(args.report)
    if args.output is not None:
        if not args.input.endswith(".onnx") and args.weights is None:
            raise UserError(
                f"-o {args.output}: a plan holds the weights of the model, "
                f"expected an .onnx input or --weights MODEL.onnx, got: '{args.input}'"
            )
        if str(args.output) == "-":
            raise UserError("-o -: a plan is a folder, expected its name")
        if args.objective == "profile":
            from tensoropt.compiler.pipeline.family import check_family_replaceable

            check_family_replaceable(args.output)
        else:
            check_replaceable(args.output)


def _turns(module: ir.Module) -> list[str]:
    names = bodies.open_turns(module)
    return [open_turns(names)] if names else []


@dataclass
class _Planning:
    """One request, from the module that was read to what is printed and written."""

    args: argparse.Namespace
    request: Request
    compilation: Compilation
    report: SearchReport
    say: Progress

    def run(self, module: ir.Module) -> int:
        """Return the exit status; notes come in the end: errors are one line."""
        self._check_passed(module)
        if self.args.weights is not None:
            from tensoropt.compiler.pipeline.export import check_weights

            check_weights(module, self.args.weights, training=self.args.train)
        if _is_searched(module):
            self._write(module)
            return 0
        self._prepare(module)
        notes = self._train(module)
        status = self._plan(module)
        self.say.clear()
        for line in notes:
            print(line, file=sys.stderr)
        return status

    def _check_passed(self, module: ir.Module) -> None:
        """Refuse a text that has passed what the flags are about."""
        phase = passed(module)
        if _is_searched(module) and (wants_planning(self.args) or self.args.output is None):
            self._refuse(phase, "the search")
        if self.args.train and phase not in ("import", "prepare"):
            self._refuse(phase, "building a training step")
        trains = self.args.train or TRAINING.on(module.operation.attributes)
        if self.args.objective == "profile" and self.args.output is not None and not trains:
            raise UserError(
                f"-o {self.args.output}: a family is of plans for training, "
                "expected --train as well, or no -o"
            )

    def _refuse(self, phase: str, what: str) -> NoReturn:
        raise UserError(
            f"{self.args.input}: has passed the {phase} already, expected IR from before {what}"
        )

    def _prepare(self, module: ir.Module) -> None:
        self.compilation.advance(module, "prepare")
        try:
            check_ends(module)
        except UserError as error:
            raise UserError(f"{self.args.input}: {error}") from None

    def _train(self, module: ir.Module) -> list[str]:
        """Build the training step; return what to say of it, and of sizes and bodies."""
        if names := open_dims(module):
            return [open_sizes(names), *_turns(module)]
        if not self.args.train:
            return _turns(module)
        spec = self.compilation.step.one_spec
        check_patterns(spec.freeze, argument_names(module))
        forward = copy_of(module)
        self.compilation.advance(module, "train", self.say)
        return [*training_notes(forward, module, spec.precision)]

    def _plan(self, module: ir.Module) -> int:
        self.compilation.advance(module, "rules", self.say)
        if self.args.objective == "profile":
            with self.compilation.timed("profile"):
                planned = (self.args, self.request, self.compilation, self.say)
                return run_profile(module, *planned)
        if self.args.compare is not None:
            with self.compilation.timed("compare"):
                return _print_comparison(self.args, self.request, read_graphs(module), self.say)
        try:
            self._search(module)
        except KeyboardInterrupt:
            if self.report.result is None or not self.report.result.interrupted:
                raise
            return _print_interrupted(self.args, self.request, self._frontier())
        notes = [*splitting_notes(self._frontier(), self._point())]
        self._draw(notes)
        if self.args.explain:
            self._explain()
        if self.args.pareto or not (self.args.explain or self.args.output is not None):
            shown = replace(self._frontier(), chosen=self._point(), narrowed=not self.args.pareto)
            _print_frontier(self.args, shown)
        if self.args.output is not None:
            self._write(module)
        self.say.clear()
        for line in notes:
            print(line, file=sys.stderr)
        return 0

    def _draw(self, notes: Sequence[str]) -> None:
        """Write the picture and the report that were asked for."""
        assert self.report.result is not None
        if self.args.plot is not None:
            self.say(f"drawing {self.args.plot}")
            plot_frontier(replace(self._frontier(), chosen=self._point()), self.args.plot)
        if self.args.report is not None:
            from tensoropt.compiler.report.html.report import write_report

            self.say(f"writing {self.args.report}")
            points = self.report.result.points
            write_report(self._frontier(), points, self._point(), self.args.report, notes)
        self.say.clear()

    def _explain(self) -> None:
        """Print what the plan does; a search that found nothing has raised before."""
        from tensoropt.compiler.report.explain.explain import explain
        from tensoropt.compiler.report.explain.text import explanation_text

        assert self.report.result is not None
        frontier = self._frontier()
        explanation = explain(
            self._point(), self.report.result.points, frontier.model, frontier.device
        )
        if self.args.format == "json":
            write_text(None, json.dumps(explanation.to_json(), indent=2) + "\n")
        else:
            write_text(None, explanation_text(explanation))

    def _search(self, module: ir.Module) -> None:
        """Run the search; what it has to say of its frontier comes before what it refuses."""
        try:
            self.compilation.advance(module, "search")
        finally:
            self.say.clear()
            if self.report.result is not None:
                frontier = self._frontier()
                for line in (
                    *omissions(frontier),
                    *endings(frontier, anytime=self.request.anytime),
                    *self.report.notes,
                ):
                    print(line, file=sys.stderr)
                if self.request.read_pins and not self.report.result.interrupted:
                    print(pins_line(self.report.pins_cost), file=sys.stderr)

    def _frontier(self) -> FrontierReport:
        assert self.report.request is not None
        assert self.report.result is not None
        return _report(self.args, self.report.request, self.report.result)

    def _point(self) -> FrontierPoint:
        assert self.report.point is not None
        return self.report.point

    def _write(self, module: ir.Module) -> None:
        weights = self.args.weights or Path(self.args.input)
        compile_plan(module, weights, self.args.output, self.say, self.compilation)


def _is_searched(module: ir.Module) -> bool:
    return EMIT.index(passed(module)) >= EMIT.index("search")


def _print_interrupted(args: argparse.Namespace, request: Request, frontier: FrontierReport) -> int:
    """Print what was found before Ctrl-C; no file is written for less than was asked for."""
    chosen = None
    if not args.pareto and args.output is None:
        chosen = pick_point(fitting(frontier.points, request), request.picked)
    _print_frontier(args, replace(frontier, chosen=chosen, narrowed=chosen is not None))
    sys.stdout.flush()
    wanted = (args.output, args.plot, args.report)
    unwritten = [str(path) for path in wanted if path is not None]
    kept = f"; not written: {', '.join(unwritten)}" if unwritten else ""
    said = interruption(frontier.epsilon, left_out=bool(frontier.left_out))
    print(f"{said}{kept}", file=sys.stderr)
    return INTERRUPTED


def _report(
    args: argparse.Namespace,
    request: Request,
    result: FrontierResult,
) -> FrontierReport:
    return FrontierReport(
        Path(args.input).name,
        request.description.name,
        request.devices,
        result.points,
        epsilon=result.epsilon,
        time_epsilon=result.time_epsilon,
        found=result.found,
        left_out=result.left_out,
        interrupted=result.interrupted,
        stopped=result.stopped,
        time_limit_s=request.time_limit_s,
    )


def _print_frontier(args: argparse.Namespace, frontier: FrontierReport) -> None:
    if args.format == "json":
        write_text(None, frontier_json(frontier))
    elif args.format == "csv":
        write_text(None, frontier_csv(frontier))
    else:
        write_text(None, frontier_table(frontier, colour=sys.stdout.isatty()))


def _print_comparison(
    args: argparse.Namespace, request: Request, graphs: Graphs, say: Progress
) -> int:
    rows = compare(graphs, request, compared(args), say)
    say.clear()
    name = Path(args.input).name
    comparison = Comparison(name, request.description.name, request.devices, rows)
    if args.plot is not None:
        plot_comparison(comparison, args.plot)
    if args.format == "json":
        write_text(None, comparison_json(comparison))
    elif args.format == "csv":
        write_text(None, comparison_csv(comparison))
    else:
        write_text(None, comparison_table(comparison, colour=sys.stdout.isatty()))
    return 0
