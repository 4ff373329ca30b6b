"""How the commands start: Ctrl-C ends them without a traceback while they import, too."""

from __future__ import annotations

import importlib

from tensoropt.runtime.support.status_line import clear_line, show_line

__all__ = ["INTERRUPTED", "run_main"]

INTERRUPTED = 130
"""The exit status after Ctrl-C."""


def run_main(module: str) -> int:
    """Import ``module`` and return the exit status of its `main`, which reads the arguments."""
    try:
        show_line("starting", quietly=True)
        command = importlib.import_module(module)
        clear_line()
        status: int = command.main()
    except KeyboardInterrupt:
        return INTERRUPTED
    return status
