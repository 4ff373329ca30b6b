"""What `tensoropt-run` starts with: it imports next to nothing."""

from __future__ import annotations

from tensoropt.runtime.support.command import run_main

__all__ = ["run"]


def run() -> int:
    """Run tensoropt-run."""
    return run_main("tensoropt.runtime.cli.run")
