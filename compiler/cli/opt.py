"""tensoropt-opt: from a model to its frontier, a plan, or the IR of a phase."""

from __future__ import annotations

import argparse
from pathlib import Path

from tensoropt.compiler.cli.arguments import build_parser, parse_flags
from tensoropt.compiler.cli.combinations import COMBINATIONS, PLAN, spelled_flags
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.installation import check_installation
from tensoropt.compiler.support.options import check_combinations
from tensoropt.runtime.support.flags import run_command
from tensoropt.runtime.support.places import FORMS
from tensoropt.runtime.support.status_line import show_line

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run tensoropt-opt and return its exit status."""
    return run_command(lambda: _run(parse_flags(build_parser(), argv)))


def _run(args: argparse.Namespace) -> int:
    if args.list_passes:
        return _list_passes()
    if args.input is None:
        raise UserError("expected an .onnx model, an .mlir file, or - for stdin, got: no input")
    flags = spelled_flags(args)
    check_combinations(COMBINATIONS, flags)
    if args.output is not None and (args.emit or PLAN not in flags):
        FORMS["mlir"].check_name("-o", args.output)
    show_line("starting")
    check_installation()
    _load_rules(args.rules)
    if args.check_rules:
        from tensoropt.compiler.cli.rules_mode import run_check_rules

        return run_check_rules(args)
    if args.check_annotations:
        from tensoropt.compiler.cli.standard import run_check_annotations

        return run_check_annotations(args)
    if args.int8_caches is not None:
        from tensoropt.compiler.cli.standard import run_int8_caches

        return run_int8_caches(args)
    if args.emit:
        from tensoropt.compiler.cli.emit_mode import run_emit

        return run_emit(args)
    if PLAN in flags:
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
    from tensoropt.compiler.cli.text_mode import run_texts

    return run_texts(args)


def _list_passes() -> int:
    from tensoropt.passes.registry import PASSES, UPSTREAM, pass_class

    width = max(map(len, PASSES))
    for name in PASSES:
        print(f"{name.ljust(width)}  {pass_class(name).summary}")
    print(f"and the passes of MLIR, such as {', '.join(UPSTREAM)}")
    return 0
