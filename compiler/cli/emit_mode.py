"""Printing of a model's IR: as imported, after a pipeline, or at the end of a phase."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from tensoropt.compiler.api.model import trained
from tensoropt.compiler.cli.output import write_text
from tensoropt.compiler.cli.planning_flags import read_request, read_step
from tensoropt.compiler.cli.tracing import tracing
from tensoropt.compiler.pipeline.driver import load, loaded
from tensoropt.compiler.pipeline.phases import Compilation, phases_after
from tensoropt.compiler.pipeline.text import placed_error
from tensoropt.compiler.report.notes import missing_files
from tensoropt.compiler.support.choices import check_known
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.phases import PHASE_NAMES
from tensoropt.compiler.support.progress import Progress
from tensoropt.dialects.mlir import ir
from tensoropt.passes.base import PassError
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.passes.pipeline import Pipeline, parse_pipeline, passed_phase
from tensoropt.passes.search_strategies import SearchReport, SearchStrategiesPass
from tensoropt.runtime.plan.dims import parse_ranges
from tensoropt.runtime.support.command import begun_s

__all__ = ["run_emit", "run_model"]


def run_model(args: argparse.Namespace) -> int:
    """Import a model, run ``--pass-pipeline`` and write the IR."""
    say = Progress(asked=args.progress)
    say(f"reading {args.input}")
    module = load(Path(args.input), parse_ranges(args.dim))
    try:
        passes = parse_pipeline(args.pass_pipeline or "", module.context)
        with tracing(args) as options:
            Pipeline(passes, **options, say=say).run(module)
    except PassError as error:
        raise UserError(f"{args.input}: {error}") from error
    _write(args, module, missing_files(module))
    return 0


def run_emit(args: argparse.Namespace) -> int:
    """Write the IR at the end of the phase that ``--emit`` names."""
    check_known("--emit: unknown phase", args.emit, PHASE_NAMES)
    needs_point = PHASE_NAMES.index(args.emit) >= PHASE_NAMES.index("search")
    request = read_request(args) if needs_point else None
    step = read_step(args, request)
    path, say = Path(args.input), Progress(asked=args.progress)
    say(f"reading {path}")
    module, text = loaded(path, parse_ranges(args.dim), training=args.train)
    _check_passed(module, args)
    try:
        with tracing(args) as options:
            if request is not None:
                options["search"] = SearchStrategiesPass.from_request(
                    request, SearchReport(say, begun_s())
                )
            compilation = Compilation(args.train, step or BuildTrainingStepPass(), **options)
            notes = list[str]()
            if args.train and "train" in phases_after(passed_phase(module), args.emit):
                compilation.advance(module, "prepare", say)
                compilation, module, notes = trained(module, compilation, say)
            compilation.advance(module, args.emit, say)
    except PassError as error:
        raise placed_error(path, text, error) from error
    _write(args, module, [*(missing_files(module) if text is None else ()), *notes])
    return 0


def _write(args: argparse.Namespace, module: ir.Module, notes: Iterable[str]) -> None:
    """Write the IR, then print ``notes``."""
    write_text(args.output, _text(module))
    sys.stdout.flush()
    for line in notes:
        print(line, file=sys.stderr)


def _check_passed(module: ir.Module, args: argparse.Namespace) -> None:
    """Refuse flags of phases that a text has passed."""
    phase = passed_phase(module)
    if PHASE_NAMES.index(args.emit) < PHASE_NAMES.index(phase):
        raise UserError(
            f"{args.input}: has passed the {phase} already, expected --emit {phase} or later, "
            f"got: --emit {args.emit}"
        )
    if PHASE_NAMES.index(phase) >= PHASE_NAMES.index("search") and "planning" in args.given:
        raise UserError(f"{args.input}: has passed the search, expected no planning flags")
    if PHASE_NAMES.index(phase) >= PHASE_NAMES.index("train") and args.train:
        raise UserError(f"{args.input}: has passed the {phase} already, expected no --train")


def _text(module: ir.Module) -> str:
    # Locations have the names of the ONNX nodes, which later phases need when they read the text.
    return str(module.operation.get_asm(enable_debug_info=True))
