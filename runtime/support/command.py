"""How the commands start, and end: Ctrl-C ends them without a traceback while they import, too."""

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
    """Return when the person who waits for this command began to, on ``time.monotonic()``.

    That is when the process started; now, where a program calls what the command does.
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
    except Exception as error:  # a bug of ours, unless the system gave too little
        if not isinstance(error, MemoryError) and shortage(str(error)) is None:
            raise
        clear_line()
        print(f"error: {printable(cause_of(error))}", file=sys.stderr)
        return 1
    return status


def end(status: int) -> NoReturn:
    """End this process with an exit status, once all is written; what it holds is not freed.

    A long search leaves a million objects. To take them down one by one, after the answer is there,
    took the interpreter two seconds.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):  # which the command has told
                stream.flush()
    os._exit(status)
