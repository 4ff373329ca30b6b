"""Options that a dataclass declares once, for commands, Python and pass pipelines."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field, dataclass, field, fields, replace
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeVar

from tensoropt.compiler.support.choices import check_known, whole_number
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.units import parse_bytes
from tensoropt.runtime.support.places import Place

__all__ = [
    "Combination",
    "Interface",
    "Option",
    "check_combinations",
    "number",
    "one_of",
    "options_of",
    "size",
    "text",
    "whole",
]


class Interface(Enum):
    """The place of an option, which determines the name of the option in help and errors."""

    COMMAND = "command"
    PYTHON = "python"
    PIPELINE = "pipeline"

    def name_of(self, option: str) -> str:
        """Return the name: ``--search-time``, ``search_time`` or ``search-time``."""
        if self is Interface.PYTHON:
            return option
        dashed = option.replace("_", "-")
        return f"--{dashed}" if self is Interface.COMMAND else dashed

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Name options for this interface in errors that begin with a flag.

        The search and the layers below it name the flags of the command.
        """
        try:
            yield
        except UserError as error:
            flag = re.match(r"--([a-z-]+)", str(error))
            if flag is None or self is Interface.COMMAND:
                raise
            name = self.name_of(flag[1].replace("-", "_"))
            text = re.sub(rf"{flag[0]}(?![\w-])", name, str(error))
            error.args = (text, *error.args[1:])
            raise


Reader = Callable[[str, object], object]
"""Converts a value, from text or from Python. A value that a reader returned stays the same.

The first argument is the name of the option, with which an error begins.
"""


def text(name: str, given: object) -> str:
    """Return a text, or the text of a path."""
    return str(given)


def size(name: str, given: object) -> str:
    """Return a positive amount of bytes, such as ``16GiB``, as text."""
    parse_bytes(str(given), name)
    return str(given)


def one_of(noun: str, choices: Iterable[str]) -> Reader:
    """Return the reader of one of ``choices``; an error calls the value an unknown ``noun``."""

    def read(name: str, given: object) -> str:
        check_known(f"{name}: unknown {noun}", str(given), choices)
        return str(given)

    return read


def whole(least: int, most: int) -> Reader:
    """Return the reader of a whole number within bounds."""
    return lambda name, given: whole_number(name, str(given), least, most)


def number(expected: str, least: float, most: float = sys.float_info.max) -> Reader:
    """Return the reader of a number within bounds; an error describes it as ``expected``."""

    def read(name: str, given: object) -> float:
        try:
            value = float(str(given))
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise UserError(f"{name}: expected {expected}, got: '{given}'")
        return value

    return read


T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """The declaration of an option: its :meth:`field` is a field of a dataclass.

    ``help`` may refer to other options, such as
    ``{search}``; ``in_command`` and ``in_python`` continue it there. ``flag`` is the name of the
    flag if it differs from the name of the field. An option that ``repeats`` has several values.
    ``owners`` are the values of another option that use this one; empty if all do. ``place`` is the
    role of an option that names files.
    """

    metavar: str
    help: str
    read: Reader = text
    in_command: str = ""
    in_python: str = ""
    flag: str | None = None
    repeats: bool = False
    owners: Sequence[str] = ()
    place: Place | None = None
    name: str = ""
    default: object = None

    def field(self, default: T, *, in_pipeline: bool = True) -> T:
        """Return the field; only if ``in_pipeline`` it is an option of a pass."""
        return field(default=default, metadata={"declared": self, "option": in_pipeline})

    def help_in(self, interface: Interface) -> str:
        """Return the help text, with the default except in a pipeline.

        Outside commands, names of options and quoted examples are marked as code.
        """
        more = {Interface.COMMAND: self.in_command, Interface.PYTHON: self.in_python}
        help = self.help + more.get(interface, "")
        quote = "" if interface is Interface.COMMAND else "``"
        help = re.sub(r"\{(\w+)\}", lambda at: f"{quote}{interface.name_of(at[1])}{quote}", help)
        if interface is not Interface.COMMAND:
            help = re.sub(r"'(\S+=\S+)'", r"``\1``", help)
        notes = [] if self.default in (None, ()) else [f"default {self.default}"]
        if self.repeats and interface is Interface.COMMAND:
            notes.append("repeatable")
        if interface is Interface.PIPELINE or not notes:
            return help
        return f"{help} ({', '.join(notes)})"

    def check_owner(self, owner: str, chosen: Collection[str], interface: Interface) -> None:
        """Raise UserError if no ``chosen`` value of the option ``owner`` uses this one."""
        if self.owners and not set(self.owners) & set(chosen):
            *first, last = self.owners
            listed = f"{', '.join(first)} or {last}" if first else last
            name, by = interface.name_of(self.name), interface.name_of(owner)
            raise UserError(f"{name} belongs to {by} {listed}, got: {by} {','.join(chosen)}")


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def options_of(cls: _Dataclass | type[_Dataclass]) -> dict[str, Option]:
    """Return the options that the fields of a dataclass declare, by name."""
    return {
        each.name: replace(each.metadata["declared"], name=each.name, default=each.default)
        for each in fields(cls)
        if "declared" in each.metadata
    }


@dataclass(frozen=True)
class Combination:
    """A combination of options that is refused.

    One of ``given`` is refused with one of ``excludes``, and without all of ``needs``. An option
    is a name, or a name and a value such as ``objective=profile``; ``a & b`` stands for both.
    ``message`` is a format of ``{given}``, ``{other}`` (the excluded one) and names of options.
    """

    given: Sequence[str]
    message: str
    excludes: Sequence[str] = ()
    needs: Sequence[str] = ()


def check_combinations(rows: Iterable[Combination], spelled: Mapping[str, str]) -> None:
    """Raise UserError for the first refused combination of the given options.

    ``spelled`` has the given options, as ``Combination`` names them, and their text in errors.
    """
    for row in rows:
        given, other = _first(row.given, spelled), _first(row.excludes, spelled)
        lacks = bool(row.needs) and _first(row.needs, spelled) is None
        if given is not None and (other is not None or lacks):
            raise UserError(row.message.format_map({**spelled, "given": given, "other": other}))


def _first(terms: Iterable[str], spelled: Mapping[str, str]) -> str | None:
    """Return the spelling of the first of ``terms`` that is given."""
    for term in terms:
        parts = term.split(" & ")
        if all(part in spelled for part in parts):
            return spelled[parts[0]]
    return None
