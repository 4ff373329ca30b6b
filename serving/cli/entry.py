"""Entry point of `tensoropt-serve`, with minimal imports."""

from __future__ import annotations

from tensoropt.runtime.support.command import run_main

__all__ = ["serve"]


def serve() -> int:
    """Run tensoropt-serve."""
    return run_main("tensoropt.serving.cli.serve")
