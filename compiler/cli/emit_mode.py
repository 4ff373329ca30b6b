"""Prints the IR of a model: as imported, after a pipeline, or at the end of a phase."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensoropt.compiler.cli.arguments import EMIT, wants_planning
from tensoropt.compiler.cli.output import write_text
from tensoropt.compiler.pipeline.request import Request, fitting
from tensoropt.compiler.search.frontier.points import pick_point
from tensoropt.compiler.support.choices import check_known
from tensoropt.compiler.support.errors import UserError
from tensoropt.passes.base import PassError
from tensoropt.runtime.plan.dims import parse_dims

if TYPE_CHECKING:
    from tensoropt.compiler.training.spec import TrainingSpec
    from tensoropt.dialects.mlir import ir

__all__ = ["printing", "run_emit", "run_model"]


def printing(args: argparse.Namespace) -> dict[str, Any]:
    """Return what the flags say about printing while passes run."""
    return {
        "print_after_all": args.mlir_print_ir_after_all,
        "print_after": args.mlir_print_ir_after,
        "timing": args.mlir_timing,
    }


def run_model(args: argparse.Namespace) -> int:
    """Import a model, run ``--pass-pipeline`` and write the IR."""
    from tensoropt.compiler.pipeline.driver import load
    from tensoropt.passes.pipeline import Pipeline, parse_pipeline

    module = load(Path(args.input), parse_dims(args.dim))
    try:
        passes = parse_pipeline(args.pass_pipeline or "", module.context)
        Pipeline(passes, **printing(args)).run(module)
    except PassError as error:
        raise UserError(f"{args.input}: {error}") from error
    write_text(args.output, _text(module))
    return 0


def run_emit(args: argparse.Namespace) -> int:
    """Write the IR at the end of the phase that ``--emit`` names."""
    check_known("--emit: unknown phase", args.emit, EMIT)
    from tensoropt.compiler.cli.planning_flags import read_request
    from tensoropt.compiler.cli.training_flags import read_training
    from tensoropt.compiler.pipeline.driver import load

    needs_point = EMIT.index(args.emit) >= EMIT.index("search")
    if not needs_point and wants_planning(args):
        raise UserError(f"--emit {args.emit} comes before the search, expected no planning flags")
    request = read_request(args) if needs_point else None
    specs = request.training if request is not None else read_training(args)
    module = load(Path(args.input), parse_dims(args.dim), training=args.train)
    try:
        module = _advance(module, args, _phases_left(module, args), request, specs)
    except PassError as error:
        raise UserError(f"{args.input}: {error}") from error
    write_text(args.output, _text(module))
    return 0


def _phases_left(module: ir.Module, args: argparse.Namespace) -> Sequence[str]:
    """Return the phases to run: a text may have passed some of them."""
    from tensoropt.compiler.pipeline.driver import phase_of

    passed = phase_of(module)
    if EMIT.index(args.emit) < EMIT.index(passed):
        raise UserError(
            f"{args.input}: has passed the {passed} already, expected --emit {passed} or later, "
            f"got: --emit {args.emit}"
        )
    if passed not in ("import", "train") and wants_planning(args):
        raise UserError(f"{args.input}: has passed the search, expected no planning flags")
    if passed != "import" and args.train:
        raise UserError(f"{args.input}: has passed the {passed} already, expected no --train")
    return EMIT[EMIT.index(passed) + 1 : EMIT.index(args.emit) + 1]


def _advance(
    module: ir.Module,
    args: argparse.Namespace,
    phases: Sequence[str],
    request: Request | None,
    specs: Sequence[TrainingSpec],
) -> ir.Module:
    """Return ``module`` after ``phases``; a search builds the training steps that it looks at."""
    from tensoropt.compiler.pipeline.driver import run_phase
    from tensoropt.compiler.pipeline.training_steps import build_step

    for phase in phases:
        if phase == "search":
            assert request is not None
            module = _searched(module, args, request)
        elif phase != "train":
            run_phase(module, phase, training=args.train, **printing(args))
        elif args.emit == phase:
            module = build_step(module, specs[0], **printing(args))
    return module


def _searched(module: ir.Module, args: argparse.Namespace, request: Request) -> ir.Module:
    from tensoropt.compiler.cli.planning_flags import which_point
    from tensoropt.compiler.pipeline.driver import apply_point, frontier
    from tensoropt.compiler.pipeline.training_steps import step_of

    points = fitting(frontier(module, request).points, request)
    point = pick_point(points, which_point(args))
    module = step_of(module, request.training, point)
    apply_point(module, point, request)
    return module


def _text(module: ir.Module) -> str:
    # Locations hold the names of the ONNX nodes; without them the text could not be resumed from.
    return str(module.operation.get_asm(enable_debug_info=True))
