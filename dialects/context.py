"""The MLIR context of this project's modules."""

from __future__ import annotations

import threading

from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import Topt

__all__ = ["context"]


_loading = threading.Lock()
"""The bindings keep the state of a load in the class of the dialect, which all threads share."""


def context() -> ir.Context:
    """Return a fresh context with `topt` loaded and the open `onnx` namespace allowed."""
    ctx = ir.Context()
    ctx.allow_unregistered_dialects = True
    with _loading, ctx, ir.Location.unknown():
        Topt.load()
    return ctx
