"""The mlir-opt mode of tensoropt-opt: runs passes on MLIR texts."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.compiler.cli.expected import mismatches, parse_expectations
from tensoropt.compiler.cli.output import write_text
from tensoropt.compiler.cli.tracing import tracing
from tensoropt.compiler.support.errors import UserError
from tensoropt.passes.base import PassError
from tensoropt.passes.diagnostics import Diagnostic, describe

if TYPE_CHECKING:
    from tensoropt.dialects.mlir import ir

__all__ = ["run_texts"]

_SEPARATOR = re.compile(r"^// -----.*\n?", re.MULTILINE)
_JOINT = "\n// -----\n"


def run_texts(args: argparse.Namespace) -> int:
    """Run ``args.pass_pipeline`` on every part of an MLIR text and write the results."""
    name, text = _read(args.input)
    parts = list(_parts(text)) if args.split_input_file else [(1, text)]
    outputs, failed, expected = [], False, 0
    for line, part in parts:
        output, diagnostics = _run_part(args, part, line, name)
        if args.verify_diagnostics:
            expectations = parse_expectations(part, line, name)
            expected += len(expectations)
            failed |= _report_mismatches(name, mismatches(expectations, diagnostics))
        else:
            failed |= _report(name, diagnostics)
        outputs += [] if output is None else [output]
    if args.verify_diagnostics and not expected:
        raise UserError(
            f"{name}: --verify-diagnostics expected at least one 'expected-...' comment"
        )
    if failed:
        return 1
    write_text(args.output, _JOINT.join(outputs))
    return 0


def _read(path: str) -> tuple[str, str]:
    from tensoropt.compiler.pipeline.text import read_text

    return "<stdin>" if path == "-" else path, read_text(Path(path))


def _parts(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for match in [*_SEPARATOR.finditer(text), None]:
        end = match.start() if match else len(text)
        yield text.count("\n", 0, start) + 1, text[start:end]
        start = match.end() if match else end


def _run_part(
    args: argparse.Namespace, part: str, line: int, name: str
) -> tuple[str | None, list[Diagnostic]]:
    from tensoropt.compiler.pipeline.text import new_context

    diagnostics: list[Diagnostic] = []
    with new_context() as context:
        context.attach_diagnostic_handler(lambda info: _collect(info, diagnostics))
        try:
            return _transform(args, part, line, context), diagnostics
        except PassError as error:
            own = Diagnostic("error", error.message, error.location)
            return None, [*diagnostics, own, *error.attached]


def _transform(args: argparse.Namespace, part: str, line: int, context: ir.Context) -> str:
    from tensoropt.compiler.pipeline.text import parse_text
    from tensoropt.passes.pipeline import Pipeline, parse_pipeline

    passes = parse_pipeline(args.pass_pipeline or "", context)
    # Leading blank lines preserve the line numbers of the whole file.
    module = parse_text("\n" * (line - 1) + part)
    with tracing(args) as options:
        Pipeline(passes, **options).run(module)
    # Locations have the names of ONNX nodes; retain them if the text has them.
    return str(module.operation.get_asm(enable_debug_info=" loc(" in part))


def _collect(info: ir.Diagnostic, diagnostics: list[Diagnostic]) -> bool:
    diagnostics += Diagnostic.unpack(info)
    return True


def _report(name: str, diagnostics: list[Diagnostic]) -> bool:
    for diagnostic in diagnostics:
        where = describe(diagnostic.location)
        where = f"{name}{where[1:]}" if where.startswith("-:") else where or name
        print(f"{where}: {diagnostic.severity}: {diagnostic.message}", file=sys.stderr)
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)


def _report_mismatches(name: str, wrong: list[tuple[int | None, str]]) -> bool:
    for line, message in wrong:
        print(f"{name}:{line or 'unknown'}: error: {message}", file=sys.stderr)
    return bool(wrong)
