"""How commands read their arguments, and how they end."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn

from tensoropt.runtime.support.command import INTERRUPTED
from tensoropt.runtime.support.errors import (
    TensoroptError,
    UserError,
    did_you_mean,
    one_line,
    printable,
)
from tensoropt.runtime.support.status_line import clear_line

__all__ = ["Parser", "answered", "integer", "number", "said_of"]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are `UserError`, with the flag that may have been meant."""

    def error(self, message: str) -> NoReturn:
        if unknown := re.match(r"unrecognized arguments: (\S+)", message):
            raise UserError(message + did_you_mean(unknown[1], _flags_of(self)))
        if choice := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            raise UserError(message + did_you_mean(choice[1], re.findall(r"[\w-]+", choice[2])))
        raise UserError(message)


def _flags_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield all flags, those of subcommands too: what one does not know, the whole refuses."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _flags_of(command)


def answered(work: Callable[[], int], *, failure: int = 1) -> int:
    """Do a command's work and return its exit status.

    An error is one line on stderr, and the status ``failure``.
    """
    try:
        return work()
    except TensoroptError as error:
        return _refuse(str(error), failure)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:  # a full disk, a reader of stdout that went away
        message = said_of(error)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flushed again at exit
        return 141 if isinstance(error, BrokenPipeError) else _refuse(message, failure)
    finally:
        clear_line()


def said_of(error: OSError) -> str:
    """Return an error of the system as one line, which names stdout if that cannot be written."""
    message = one_line(error)
    if error.filename is not None:
        return message
    try:
        sys.stdout.flush()  # raises again while there is text that nobody took
    except OSError:
        return f"standard output: {message}"
    return message


def _refuse(message: str, status: int) -> int:
    clear_line()
    print(f"error: {printable(message)}", file=sys.stderr)
    return status


def number(low: float) -> Callable[[str], float]:
    """Return what reads a finite number that is at least ``low``."""

    def number(text: str) -> float:
        value = float(text)
        if not low <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"expected at least {low:g}, got: {text}")
        return value

    return number


def integer(low: int) -> Callable[[str], int]:
    """Return what reads an integer that is at least ``low``."""

    def integer(text: str) -> int:
        value = int(text)
        if value < low:
            raise argparse.ArgumentTypeError(f"expected at least {low}, got: {value}")
        return value

    return integer
