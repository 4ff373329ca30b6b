"""Argument parsing and error handling of the commands."""

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
from tensoropt.runtime.support.options import command_text
from tensoropt.runtime.support.status_line import clear_line

__all__ = ["Parser", "answered", "describe_os_error"]


class Parser(argparse.ArgumentParser):
    """A parser that raises `UserError`, with the flag that may have been meant."""

    def error(self, message: str) -> NoReturn:
        if unknown := re.match(r"unrecognized arguments: (\S+)", message):
            raise UserError(message + did_you_mean(unknown[1], _flags_of(self)))
        if choice := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            message += did_you_mean(choice[1], re.findall(r"[\w-]+", choice[2]))
        raise UserError(message.removeprefix("argument "))


def _flags_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield all flags, including the subcommands' flags: the main parser reports unknown flags."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _flags_of(command)


def answered(work: Callable[[], int], *, failure: int = 1) -> int:
    """Run a command and return its exit status.

    An error is printed as one line on stderr, with the status ``failure``.
    """
    try:
        return work()
    except TensoroptError as error:
        return _refuse(command_text(error), failure)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:  # a full disk, or stdout has lost its reader
        message = describe_os_error(error)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flushed again at exit
        return 141 if isinstance(error, BrokenPipeError) else _refuse(message, failure)
    finally:
        clear_line()


def describe_os_error(error: OSError) -> str:
    """Return a system error as one line, which names stdout if writing to it failed."""
    message = one_line(error)
    if error.filename is not None:
        return message
    try:
        sys.stdout.flush()  # raises again if unwritten text is left
    except OSError:
        return f"standard output: {message}"
    return message


def _refuse(message: str, status: int) -> int:
    clear_line()
    print(f"error: {printable(message)}", file=sys.stderr)
    return status
