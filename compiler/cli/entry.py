"""What `tensoropt-opt` and `tensoropt-profile` start with: it imports next to nothing."""

from __future__ import annotations

from tensoropt.runtime.support.command import run_main

__all__ = ["opt", "profile"]


def opt() -> int:
    """Run tensoropt-opt."""
    return run_main("tensoropt.compiler.cli.opt")


def profile() -> int:
    """Run tensoropt-profile."""
    return run_main("tensoropt.compiler.cli.profile")
