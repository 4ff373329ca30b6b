"""Entry point of `tensoropt-job`; it imports almost nothing."""

from __future__ import annotations

from tensoropt.runtime.support.command import run_main

__all__ = ["job"]


def job() -> int:
    """Run tensoropt-job."""
    return run_main("tensoropt.elastic.cli.job")
