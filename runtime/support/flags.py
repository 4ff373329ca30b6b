"""Argument parsing and error handling of the commands."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from tensoropt.runtime.support.command import INTERRUPTED
from tensoropt.runtime.support.errors import (
    TensoroptError,
    UserError,
    cause_of,
    did_you_mean,
    one_line,
    printable,
)
from tensoropt.runtime.support.options import command_text
from tensoropt.runtime.support.places import Place, Role, check_places
from tensoropt.runtime.support.status_line import clear_line

__all__ = ["BROKEN_PIPE", "Parser", "place_of", "run_command"]

BROKEN_PIPE = 141
"""The exit status if the reader of stdout has gone."""


class Parser(argparse.ArgumentParser):
    """A parser that raises `UserError`, with the flag or choice that may have been meant.

    Flags have no abbreviations, and descriptions keep their lines.
    """

    def __init__(self, **settings: Any) -> None:
        layout = argparse.RawDescriptionHelpFormatter
        super().__init__(**{"formatter_class": layout, "allow_abbrev": False, **settings})

    def parse(self, argv: Sequence[str] | None = None) -> argparse.Namespace:
        """Return the arguments; raises `UserError`."""
        arguments, rest = self.parse_known_args(argv)
        if rest:
            near = did_you_mean(rest[0].split("=")[0], self.flags())
            self.error(f"unknown argument '{rest[0]}'{near}")
        check_places(self._roles(arguments))
        return arguments

    def _roles(self, arguments: argparse.Namespace) -> Iterator[Role]:
        """Yield the paths that the user named."""
        for action in self._actions:
            value = getattr(arguments, action.dest, None)
            if isinstance(action, argparse._SubParsersAction):
                if value is not None:
                    yield from action.choices[value]._roles(arguments)
                continue
            place = place_of(action)
            if place is None or value is None:
                continue
            flag = action.option_strings[-1] if action.option_strings else ""
            for each in value if isinstance(value, list) else [value]:
                yield Role(flag, action.dest, place, each)

    def error(self, message: str) -> NoReturn:
        if choice := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            message += did_you_mean(choice[1], re.findall(r"[\w-]+", choice[2]))
        raise UserError(f"{message.removeprefix('argument ')} (see {self.prog} --help)")

    @property
    def groups(self) -> list[tuple[str, list[argparse.Action]]]:
        """The arguments by group, with the title of each group; without subcommands."""
        found = []
        for group in self._action_groups:
            actions = group._group_actions
            own = [a for a in actions if not isinstance(a, argparse._SubParsersAction)]
            found.append((group.title or "", own))
        return found

    @property
    def commands(self) -> Mapping[str, Parser]:
        """The parsers of the subcommands, by name."""
        found: dict[str, Parser] = {}
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                found.update(action.choices)
        return found

    def flags(self) -> Iterator[str]:
        """Yield all flags, including the flags of subcommands."""
        for _, actions in self.groups:
            for action in actions:
                yield from action.option_strings
        for command in self.commands.values():
            yield from command.flags()


def place_of(action: argparse.Action) -> Place | None:
    """Return the place of a flag for a path, None for other flags."""
    if isinstance(action.type, Place):
        return action.type
    place: Place | None = getattr(action.type, "place", None)
    return place


def run_command(work: Callable[[], int | None], *, failure: int = 1) -> int:
    """Run a command and return its exit status; ``None`` of ``work`` is success.

    A user's mistake, an ``OSError`` (a full disk, an unreadable file) or lack of memory is printed
    as one line on stderr, with the status of the error, or else ``failure``. Characters that the
    locale lacks are printed as escapes. Any other exception is a bug of tensoropt, with a
    traceback.
    """
    if sys.stdout is None:
        return _refuse("standard output is closed", failure)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a locale may not have all characters
            stream.reconfigure(errors="backslashreplace")
    try:
        status = work()
        sys.stdout.flush()
        return status or 0
    except TensoroptError as error:
        return _refuse(command_text(error), error.exit_status or failure)
    except KeyboardInterrupt:
        return INTERRUPTED
    except MemoryError as error:
        return _refuse(cause_of(error), failure)
    except BrokenPipeError:
        _flush()
        return BROKEN_PIPE
    except OSError as error:
        named = _flush() or error.filename is not None
        return _refuse(one_line(error) if named else f"standard output: {one_line(error)}", failure)
    finally:
        clear_line()


def _flush() -> bool:
    """Write the rest of stdout; if that fails, discard it, as it would fail again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        return False
    return True


def _refuse(message: str, status: int) -> int:
    clear_line()
    print(f"error: {printable(message)}", file=sys.stderr)
    return status
