"""What the flags of mlir-opt print on stderr while passes run: the IR, and the time of each."""

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
    """Yield the options of pipelines that print; in the end the time of all passes is printed."""
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
