"""Entry points of `tensoropt-run` and `tensoropt-plan`, with minimal imports."""

from __future__ import annotations

from tensoropt.runtime.support.command import run_main

__all__ = ["plan", "run"]


def run() -> int:
    """Run tensoropt-run."""
    return run_main("tensoropt.runtime.cli.run")


def plan() -> int:
    """Run tensoropt-plan."""
    return run_main("tensoropt.runtime.cli.plan")
