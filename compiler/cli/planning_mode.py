"""The person's side of tensoropt-opt: a frontier, a profile, a plan directory."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.compiler.cli.guard import INTERRUPTED
from tensoropt.compiler.cli.output import Progress, write_text
from tensoropt.compiler.cli.planning_flags import compared, read_request, which_point
from tensoropt.compiler.cli.splitting import splitting_notes
from tensoropt.compiler.exporter.plan.writer import check_replaceable
from tensoropt.compiler.pipeline.request import Chosen, Request, fitting
from tensoropt.compiler.report.comparison import (
    Comparison,
    comparison_csv,
    comparison_json,
    comparison_table,
)
from tensoropt.compiler.report.frontier import FrontierReport, ScalingReport
from tensoropt.compiler.report.machine import (
    frontier_csv,
    frontier_json,
    profile_csv,
    profile_json,
)
from tensoropt.compiler.report.notes import (
    endings,
    interruption,
    omissions,
    open_sizes,
    open_turns,
)
from tensoropt.compiler.report.plot import check_plot_path, plot_frontier
from tensoropt.compiler.report.table import frontier_table, profile_table
from tensoropt.compiler.search.frontier.points import Point, pick_point
from tensoropt.compiler.support.errors import UserError
from tensoropt.passes.base import PassError
from tensoropt.runtime.plan.dims import parse_dims

if TYPE_CHECKING:
    from tensoropt.compiler.search.frontier.search import FrontierResult
    from tensoropt.dialects.mlir import ir

__all__ = ["run_planning"]


def run_planning(args: argparse.Namespace) -> int:
    """Search, print what was asked for, and write the plan where ``-o`` says."""
    request = read_request(args)
    dims = parse_dims(args.dim)
    _check_places(args)
    say = Progress(asked=args.progress)
    try:
        say(f"reading {args.input}")
        module = _prepared(args, dims)
        notes = _notes(module, request)
        status = _plan(args, request, module, say)
        say.clear()
        for line in notes:
            print(line, file=sys.stderr)
        return status
    except PassError as error:
        raise UserError(f"{args.input}: {error}") from error
    finally:
        say.clear()


def _check_places(args: argparse.Namespace) -> None:
    """Refuse what could not be written in the end, before any time is spent."""
    if args.plot is not None:
        check_plot_path(args.plot)
    if args.output is not None:
        if not args.input.endswith(".onnx"):
            raise UserError(
                f"-o {args.output}: a plan holds the weights of the model, "
                f"expected an .onnx input, got: '{args.input}'"
            )
        if str(args.output) == "-":
            raise UserError("-o -: a plan is a folder, expected its name")
        check_replaceable(args.output)


def _notes(module: ir.Module, request: Request) -> list[str]:
    """Return what to say of sizes, bodies and the trained step, in the end: errors are one line."""
    from tensoropt.compiler.importer.dimensions import open_dims
    from tensoropt.compiler.pipeline.driver import phase_of

    if names := open_dims(module):
        return [open_sizes(names), *_turns(module)]
    if not request.training or phase_of(module) == "train":
        return _turns(module)
    from tensoropt.compiler.pipeline.training_steps import build_step
    from tensoropt.compiler.report.training import training_notes
    from tensoropt.compiler.training.cut import argument_names
    from tensoropt.compiler.training.spec import check_patterns

    plain = replace(request.training[0], recompute="none")
    check_patterns(plain.freeze, argument_names(module))
    return [*training_notes(module, build_step(module, plain), plain.precision)]


def _turns(module: ir.Module) -> list[str]:
    from tensoropt.compiler.cost import bodies

    names = bodies.open_turns(module)
    return [open_turns(names)] if names else []


def _prepared(args: argparse.Namespace, dims: dict[str, int]) -> ir.Module:
    from tensoropt.compiler.exporter.plan.describe import check_ends
    from tensoropt.compiler.pipeline.driver import load, phase_of, run_phase

    module = load(Path(args.input), dims, training=args.train)
    passed = phase_of(module)
    if passed == "train" and not args.train:
        return module  # whoever built the step has prepared it
    if passed != "import":
        what = "building a training step" if args.train else "the search"
        raise UserError(
            f"{args.input}: has passed the {passed} already, expected IR from before {what}"
        )
    run_phase(module, "prepare", training=args.train)
    try:
        check_ends(module)
    except UserError as error:
        raise UserError(f"{args.input}: {error}") from None
    return module


def _plan(args: argparse.Namespace, request: Request, module: ir.Module, say: Progress) -> int:
    if args.objective == "profile":
        return _print_profile(args, request, module, say)
    if args.compare is not None:
        return _print_comparison(args, request, module, say)
    request, result = _search(args, request, module, say)
    say.clear()
    frontier = _report(args, request, result)
    for line in (*omissions(frontier), *endings(frontier, anytime=request.anytime)):
        print(line, file=sys.stderr)
    if result.interrupted:
        return _print_interrupted(args, request, frontier)
    point = pick_point(fitting(result.points, request), which_point(args))
    notes = [*splitting_notes(frontier, point)]
    if args.plot is not None:
        plot_frontier(frontier, args.plot)
    if args.pareto or args.output is None:
        _print_frontier(args, replace(frontier, chosen=point, narrowed=not args.pareto))
    if args.output is not None:
        from tensoropt.compiler.pipeline.driver import compile_plan

        chosen = Chosen(Path(args.input), request, result, point)
        compile_plan(module, chosen, args.output, say)
    say.clear()
    for line in notes:
        print(line, file=sys.stderr)
    return 0


def _print_interrupted(args: argparse.Namespace, request: Request, frontier: FrontierReport) -> int:
    """Print what was found before Ctrl-C; no file is written for less than was asked for."""
    chosen = None
    if not args.pareto and args.output is None:
        chosen = pick_point(fitting(frontier.points, request), which_point(args))
    _print_frontier(args, replace(frontier, chosen=chosen, narrowed=chosen is not None))
    sys.stdout.flush()
    unwritten = [str(path) for path in (args.output, args.plot) if path is not None]
    kept = f"; not written: {', '.join(unwritten)}" if unwritten else ""
    said = interruption(frontier.epsilon, left_out=bool(frontier.left_out))
    print(f"{said}{kept}", file=sys.stderr)
    return INTERRUPTED


def _search(
    args: argparse.Namespace, request: Request, module: ir.Module, say: Progress
) -> tuple[Request, FrontierResult]:
    from tensoropt.compiler.pipeline.driver import fewest_devices, frontier

    if args.objective == "devices":
        return fewest_devices(module, request, say)
    return request, frontier(module, request, say)


def _report(
    args: argparse.Namespace,
    request: Request,
    result: FrontierResult,
) -> FrontierReport:
    return FrontierReport(
        Path(args.input).name,
        request.device.name,
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


def _print_profile(
    args: argparse.Namespace, request: Request, module: ir.Module, say: Progress
) -> int:
    from tensoropt.compiler.pipeline.driver import profile as search_profile

    rows: list[tuple[int, Point | None]] = []
    status = 0
    try:
        for row in search_profile(module, request, say):
            rows.append(row)
    except KeyboardInterrupt:
        if not rows:
            raise
        status = INTERRUPTED
    say.clear()
    profile = ScalingReport(Path(args.input).name, request.device.name, rows)
    if args.format == "json":
        write_text(None, profile_json(profile))
    elif args.format == "csv":
        write_text(None, profile_csv(profile))
    else:
        write_text(None, profile_table(profile, colour=sys.stdout.isatty()))
    if status:
        sys.stdout.flush()
        print(f"interrupted: these are the counts up to {rows[-1][0]} devices", file=sys.stderr)
    return status


def _print_comparison(
    args: argparse.Namespace, request: Request, module: ir.Module, say: Progress
) -> int:
    from tensoropt.compiler.pipeline.driver import compare

    rows = compare(module, request, compared(args), say)
    say.clear()
    name = Path(args.input).name
    comparison = Comparison(name, request.device.name, request.devices, rows)
    if args.format == "json":
        write_text(None, comparison_json(comparison))
    elif args.format == "csv":
        write_text(None, comparison_csv(comparison))
    else:
        write_text(None, comparison_table(comparison, colour=sys.stdout.isatty()))
    return 0
