"""Start and end of the commands: Ctrl-C during imports ends them without a traceback, too."""

from __future__ import annotations

import importlib
import os
import sys
import time
from contextlib import suppress
from typing import NoReturn

from tensoropt.runtime.support.errors import cause_of, printable, shortage
from tensoropt.runtime.support.status_line import clear_line, show_line

__all__ = ["INTERRUPTED", "begun_s", "end", "run_main"]

INTERRUPTED = 130
"""The exit status after Ctrl-C."""


_begun: list[float] = []


def begun_s() -> float:
    """Return the time at which the user started the command, on the clock ``time.monotonic()``.

    That is the start of the process, or the current time if a program calls the library.
    """
    return _begun[0] if _begun else time.monotonic()


def run_main(module: str) -> int:
    """Import ``module`` and return the exit status of its `main`, which reads the arguments."""
    _begun[:] = [time.monotonic() - time.process_time()]  # a process starts on one thread
    try:
        show_line("starting", quietly=True)
        command = importlib.import_module(module)
        clear_line()
        status: int = command.main()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # a bug, unless the system is short of a resource
        if not isinstance(error, MemoryError) and shortage(str(error)) is None:
            raise
        clear_line()
        print(f"error: {printable(cause_of(error))}", file=sys.stderr)
        return 1
    return status


def end(status: int) -> NoReturn:
    """Flush the output and exit with ``status``, without freeing objects.

    A long search leaves a million objects, and destroying them took the interpreter two seconds
    after the result was printed.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):  # the command has reported it
                stream.flush()
    os._exit(status)
