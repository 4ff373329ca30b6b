"""The MLIR context of this project's modules."""

from __future__ import annotations

from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import Topt

__all__ = ["context"]


def context() -> ir.Context:
    """Return a fresh context with `topt` loaded and the open `onnx` namespace allowed."""
    ctx = ir.Context()
    ctx.allow_unregistered_dialects = True
    with ctx, ir.Location.unknown():
        Topt.load()
    return ctx
