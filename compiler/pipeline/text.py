"""Reading, parsing and verification of MLIR text, and the lines of operations in it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tensoropt.compiler.support import native
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects import onnx
from tensoropt.dialects.context import context
from tensoropt.dialects.mlir import ir
from tensoropt.passes.base import PassError
from tensoropt.passes.diagnostics import describe, line_of
from tensoropt.passes.pipeline import error_from_mlir, verify

__all__ = ["load_text", "new_context", "parse_text", "placed_error", "read_text"]

_LOCATION = re.compile(r'(?<!=) loc\((?:#loc\d*|unknown|"(?:[^"\\]|\\.)*")\)')


def new_context() -> ir.Context:
    """Return a context for one compilation; it is single-threaded for a deterministic order."""
    ctx = context()
    ctx.enable_multithreading(False)
    return ctx


def parse_text(text: str) -> ir.Module:
    """Return the verified module in MLIR ``text``, in the current context.

    The text is first parsed in a child process, as MLIR crashes on very deep nesting.
    """
    try:
        native.call(_parse, text, seconds=native.seconds_for(text.count("\n")))
    except native.NativeError:
        pass  # raised below, with its place
    except native.NativeFailureError as failure:
        raise PassError(f"MLIR's parser {failure}") from None
    try:
        module = ir.Module.parse(text)
    except ir.MLIRError as error:
        raise error_from_mlir(error) from None
    verify(module)
    return module


def _parse(text: str) -> None:
    """Parse ``text`` in the child, which may crash."""
    with new_context():
        ir.Module.parse(text)


def read_text(path: Path) -> str:
    """Return the text of an MLIR file, or of stdin for ``-``."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{_name(path)}: expected MLIR text in UTF-8, got: other bytes") from None


def load_text(path: Path, text: str) -> ir.Module:
    """Return the module in ``text``, the contents of ``path``, in the current context."""
    try:
        return parse_text(text)
    except PassError as error:
        raise placed_error(path, text, error) from None


def placed_error(path: Path, text: str | None, error: PassError) -> UserError:
    """Return ``error`` with its place: a line of ``text``, or a node of an ONNX model."""
    where = describe(error.location)
    if where.startswith("-:"):  # MLIR calls any text "-"
        return UserError(f"{_name(path)}{where[1:]}: {error.message}")
    line = None if text is None else _line_in(text, error.location)
    if line is not None:
        return UserError(f"{_name(path)}:{line}: {error}")
    return UserError(f"{_name(path)}: {error}")


def _name(path: Path) -> str:
    return "<stdin>" if str(path) == "-" else str(path)


def _line_in(text: str, location: ir.Location | None) -> int | None:
    """Return the line of the operation at ``location``, the name of a node.

    Printed text has the name of the node at the end of the line. Text parsed without these names
    has the same operations in the same order, with line numbers as locations.
    """
    if location is None or not hasattr(location, "name_str"):
        return None
    try:
        with new_context():
            named, lines = _locations(text), _locations(_LOCATION.sub("", text))
            pairs = zip(named, lines, strict=True)
            return next((line_of(b) for a, b in pairs if str(a) == str(location)), None)
    except (ir.MLIRError, ValueError):  # locations of other kinds, which _LOCATION does not match
        return None


def _locations(text: str) -> list[ir.Location]:
    module = ir.Module.parse(text)
    return [op.location for op in onnx.walk(module.operation)]
