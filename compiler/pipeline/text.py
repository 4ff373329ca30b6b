"""MLIR text: read, parsed and verified; and where in it an operation stands."""

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

__all__ = ["load_text", "new_context", "parse_text", "read_text", "said_of"]

_LOCATION = re.compile(r'(?<!=) loc\((?:#loc\d*|unknown|"(?:[^"\\]|\\.)*")\)')


def new_context() -> ir.Context:
    """Return a context for one compilation; single-threaded, so that its order never varies."""
    ctx = context()
    ctx.enable_multithreading(False)
    return ctx


def parse_text(text: str) -> ir.Module:
    """Return the module that MLIR ``text`` holds, in the current context; it is verified.

    It is parsed in a child first: MLIR does not survive what nests a hundred thousand deep.
    """
    try:
        native.call(_parse, text, seconds=native.seconds_for(text.count("\n")))
    except native.NativeError:
        pass  # said below, with its place
    except native.NativeFailureError as failure:
        raise PassError(f"MLIR's parser {failure}") from None
    try:
        module = ir.Module.parse(text)
    except ir.MLIRError as error:
        raise error_from_mlir(error) from None
    verify(module)
    return module


def _parse(text: str) -> None:
    """Parse ``text`` to see whether that ends the process; runs in the child."""
    with new_context():
        ir.Module.parse(text)


def read_text(path: Path) -> str:
    """Return what an MLIR file, or stdin for ``-``, holds."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{_name(path)}: expected MLIR text in UTF-8, got: other bytes") from None


def load_text(path: Path, text: str) -> ir.Module:
    """Return the module in ``text``, which is that of ``path``, in the current context."""
    try:
        return parse_text(text)
    except PassError as error:
        raise said_of(path, text, error) from None


def said_of(path: Path, text: str | None, error: PassError) -> UserError:
    """Return ``error`` with its place: a line of ``text`` where ``path`` is one, or a node."""
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

    Printed text names the node at the end of its line. What is parsed without the names has the
    lines instead, and the same operations in the same order.
    """
    if location is None or not hasattr(location, "name_str"):
        return None
    try:
        with new_context():
            named, lines = _locations(text), _locations(_LOCATION.sub("", text))
            pairs = zip(named, lines, strict=True)
            return next((line_of(b) for a, b in pairs if str(a) == str(location)), None)
    except (ir.MLIRError, ValueError):  # locations of other kinds, which this does not take away
        return None


def _locations(text: str) -> list[ir.Location]:
    module = ir.Module.parse(text)
    return [op.location for op in onnx.walk(module.operation)]
