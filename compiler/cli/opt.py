"""tensoropt-opt: from a model to its frontier, a plan, or the IR of a phase."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tensoropt.compiler.cli.arguments import build_parser, wants_plan, wants_planning
from tensoropt.compiler.cli.guard import guarded
from tensoropt.compiler.cli.training_flags import check_training
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.installation import check_installation
from tensoropt.runtime.support.status_line import show_line

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run tensoropt-opt and return its exit status."""
    return guarded(lambda: _run(build_parser().parse(argv)))


def _run(args: argparse.Namespace) -> int:
    if args.list_passes:
        return _list_passes()
    if args.input is None:
        raise UserError("expected an .onnx model, an .mlir file, or - for stdin, got: no input")
    _check_combination(args)
    show_line("starting")
    check_installation()
    _load_rules(args.rules)
    if args.check_rules:
        from tensoropt.compiler.cli.rules_mode import run_check_rules

        return run_check_rules(args)
    if args.check_annotations:
        from tensoropt.compiler.cli.standard import run_check_annotations

        return run_check_annotations(args)
    if args.emit:
        from tensoropt.compiler.cli.emit_mode import run_emit

        return run_emit(args)
    if wants_planning(args) or args.train or wants_plan(args):
        from tensoropt.compiler.cli.planning_mode import run_planning

        return run_planning(args)
    return _run_passes(args)


def _load_rules(path: Path | None) -> None:
    from tensoropt.compiler.sharding.rule.files import load_rules

    load_rules(path)


def _run_passes(args: argparse.Namespace) -> int:
    if args.input.endswith(".onnx"):
        from tensoropt.compiler.cli.emit_mode import run_model

        return run_model(args)
    if args.dim:
        raise UserError(f"--dim needs an .onnx model, got: '{args.input}'")
    from tensoropt.compiler.cli.text_mode import run_texts

    return run_texts(args)


def _check_combination(args: argparse.Namespace) -> None:
    check_training(args)
    planning = wants_planning(args) or args.train or wants_plan(args)
    if args.pass_pipeline is not None and (planning or args.emit):
        other = "--emit" if args.emit else "planning flags"
        raise UserError(f"--pass-pipeline runs passes alone, expected it without {other}")
    if args.custom_ops and not args.check_rules:
        raise UserError("--custom-ops belongs to --check-rules, or to tensoropt-run")
    if args.check_rules and (planning or args.emit or args.pass_pipeline is not None):
        raise UserError("--check-rules plans nothing, expected no flags of planning or passes")
    if args.check_annotations and (planning or args.emit or args.pass_pipeline is not None):
        raise UserError("--check-annotations plans nothing, expected the model alone")
    if args.weights is not None:
        _check_weights(args)
    for flag in ("split_input_file", "verify_diagnostics"):
        text = not (planning or args.emit or args.input.endswith(".onnx"))
        if getattr(args, flag) and not text:
            name = "--" + flag.replace("_", "-")
            raise UserError(f"{name} needs MLIR text and passes, got: '{args.input}'")
    if args.slashed and not planning:
        raise UserError(f"-o {args.output}{os.sep}: expected a file for MLIR text, got: a folder")
    if args.format is not None and not planning:
        raise UserError("--format needs a report, expected --pareto or --objective profile as well")


def _check_weights(args: argparse.Namespace) -> None:
    if args.input.endswith(".onnx"):
        raise UserError(f"--weights belongs to MLIR text, expected no such flag with {args.input}")
    if not wants_plan(args):
        raise UserError("--weights belongs to a plan of MLIR text, expected -o with its folder")


def _list_passes() -> int:
    from tensoropt.passes.registry import PASSES, UPSTREAM, pass_class

    width = max(map(len, PASSES))
    for name in PASSES:
        print(f"{name.ljust(width)}  {pass_class(name).summary}")
    print(f"and the passes of MLIR, such as {', '.join(UPSTREAM)}")
    return 0
