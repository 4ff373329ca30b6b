"""Exit of a command: one line for a user's mistake, silence for a broken pipe or Ctrl-C."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from tensoropt.runtime.support.command import INTERRUPTED
from tensoropt.runtime.support.errors import TensoroptError, printable
from tensoropt.runtime.support.flags import describe_os_error
from tensoropt.runtime.support.options import command_text
from tensoropt.runtime.support.status_line import clear_line

__all__ = ["BROKEN_PIPE", "FAILURE", "INTERRUPTED", "guarded"]

FAILURE = 1
BROKEN_PIPE = 141


def guarded(action: Callable[[], int]) -> int:
    """Run ``action`` and return the exit status of the command.

    A :class:`TensoroptError` or an ``OSError`` (a full disk, an unreadable file) is printed as
    ``error: ...``; any other exception is a bug of tensoropt, with a traceback.
    """
    if sys.stdout is None:
        return _refuse("standard output is closed")
    try:
        status = action()
        sys.stdout.flush()
        return status
    except TensoroptError as error:
        return _refuse(command_text(error))
    except BrokenPipeError:
        _silence_stdout()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except MemoryError:
        return _refuse("out of memory")
    except OSError as error:
        return _refuse(describe_os_error(error))
    finally:
        clear_line()


def _refuse(message: str) -> int:
    clear_line()
    print(f"error: {printable(message)}", file=sys.stderr)
    return FAILURE


def _silence_stdout() -> None:
    # Buffered text would raise again when the interpreter flushes stdout at exit.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
