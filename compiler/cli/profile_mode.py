"""`--objective profile`: time against the number of devices, and the family of the plans."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tensoropt.compiler.api.program import Program
from tensoropt.compiler.cli.output import write_text
from tensoropt.compiler.planning.memory_limit import limit_name, remedy
from tensoropt.compiler.planning.objectives import Row
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.report.frontier import ScalingReport
from tensoropt.compiler.report.machine import profile_csv, profile_json
from tensoropt.compiler.report.plot import plot_profile
from tensoropt.compiler.report.table import profile_table
from tensoropt.compiler.search.problem.problem import DoesNotFitError
from tensoropt.compiler.support.progress import Progress
from tensoropt.compiler.support.units import format_bytes
from tensoropt.runtime.family.family import Family
from tensoropt.runtime.support.command import INTERRUPTED

__all__ = ["run_profile"]


def run_profile(program: Program, args: argparse.Namespace, request: Request, say: Progress) -> int:
    """Search the numbers of devices in sequence, and write the family to ``-o``, if given.

    Returns the exit status. Ctrl-C prints the rows so far, and no family is written.
    """
    rows: list[Row] = []
    try:
        with _family(program, args, request, say) as add:
            for row in program.profile(request, say):
                rows.append(row)
                add(row)
    except KeyboardInterrupt:
        if not rows:
            raise
        say.clear()
        _print_rows(args, _report(program, args, request, rows))
        return _interrupted_at(args, rows[-1].devices)
    say.clear()
    report = _report(program, args, request, rows)
    if args.plot is not None:
        plot_profile(report, args.plot)
    _print_rows(args, report)
    _check_any(rows, request)
    if args.output is not None and args.format in (None, "table"):
        names = ", ".join(plan.name for plan in Family.read(args.output).plans)
        write_text(None, f"family: {args.output}: plans {names}\n")
    return 0


@contextmanager
def _family(
    program: Program, args: argparse.Namespace, request: Request, say: Progress
) -> Iterator[Callable[[Row], None]]:
    """Yield the function that adds a row to the family of ``-o``, if given."""
    if args.output is None:
        yield lambda row: None
        return
    with program.family(args.output, request, say, with_leanest=args.with_leanest) as add:
        yield add


def _print_rows(args: argparse.Namespace, report: ScalingReport) -> None:
    if args.format == "json":
        write_text(None, profile_json(report))
    elif args.format == "csv":
        write_text(None, profile_csv(report))
    else:
        write_text(None, profile_table(report, colour=sys.stdout.isatty()))


def _check_any(rows: Sequence[Row], request: Request) -> None:
    """Raise DoesNotFitError after a printed profile in which nothing fits."""
    limit_bytes = request.limit_bytes
    if limit_bytes is not None and all(row.point is None for row in rows):
        sys.stdout.flush()
        raise DoesNotFitError(
            f"{limit_name(request)}: nothing fits {format_bytes(limit_bytes)} on up to "
            f"{rows[-1].devices} devices, {remedy(request)}"
        )


def _report(
    program: Program, args: argparse.Namespace, request: Request, rows: Sequence[Row]
) -> ScalingReport:
    points = [(row.devices, row.point) for row in rows]
    error = program.plan_error(request)
    return ScalingReport(Path(args.input).name, request.description.name, points, error)


def _interrupted_at(args: argparse.Namespace, devices: int) -> int:
    sys.stdout.flush()
    unwritten = ", ".join(str(path) for path in (args.output, args.plot) if path is not None)
    unwritten = unwritten and f"; not written: {unwritten}"
    line = f"interrupted: these are the counts up to {devices} devices{unwritten}"
    print(line, file=sys.stderr)
    return INTERRUPTED
