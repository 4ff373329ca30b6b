"""The printing flags of mlir-opt: IR and times of passes, on stderr."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tensoropt.passes.pipeline import print_timing

__all__ = ["tracing"]


@contextmanager
def tracing(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the printing options of pipelines; at the end, print the times of all passes."""
    seconds: list[tuple[str, float]] = []
    try:
        yield {
            "print_after_all": args.mlir_print_ir_after_all,
            "print_after": args.mlir_print_ir_after,
            "seconds": seconds,
        }
    finally:
        if args.mlir_timing:
            print_timing(seconds, sys.stderr)
