"""What `tensoropt-opt` and `tensoropt-profile` start with: it imports next to nothing."""

from __future__ import annotations

from typing import NoReturn

from tensoropt.runtime.support.command import end, run_main

__all__ = ["opt", "profile"]


def opt() -> NoReturn:
    """Be tensoropt-opt."""
    end(run_main("tensoropt.compiler.cli.opt"))


def profile() -> int:
    """Run tensoropt-profile."""
    return run_main("tensoropt.compiler.cli.profile")
