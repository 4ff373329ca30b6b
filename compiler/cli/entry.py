"""Entry points of `tensoropt-opt` and `tensoropt-profile`, with almost no imports."""

from __future__ import annotations

from typing import NoReturn

from tensoropt.runtime.support.command import end, run_main

__all__ = ["opt", "profile"]


def opt() -> NoReturn:
    """Run tensoropt-opt and end the process."""
    end(run_main("tensoropt.compiler.cli.opt"))


def profile() -> int:
    """Run tensoropt-profile."""
    return run_main("tensoropt.compiler.cli.profile")
