"""Options: each is a field of a dataclass, with its kind of value and the help of its flag.

Flags of commands, arguments in Python and requests to ranks derive from the fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from string import Formatter
from typing import TYPE_CHECKING, Any, TypeVar

from tensoropt.runtime.support.errors import TensoroptError, UserError
from tensoropt.runtime.support.kinds import Kind
from tensoropt.runtime.support.places import Role

if TYPE_CHECKING:
    from argparse import Namespace

__all__ = [
    "OptionError",
    "Options",
    "add_flags",
    "command_text",
    "flag_of",
    "keywords_of",
    "option",
    "option_names",
    "options_in",
    "roles_of",
    "shows_options",
]

F = TypeVar("F", bound=Callable[..., Any])

_SINGULAR = {"dims": "--dim"}  # the flag is repeated, for one size each


class OptionError(UserError):
    """A refused option, with a text in which ``{name}`` stands for the option of that name.

    A program reads the argument's name there, and a user of a command its flag. ``{0}``, ``{1}``
    and so on stand for the values.
    """

    def __init__(self, text: str, *values: object) -> None:
        super().__init__(text, *values)

    def __str__(self) -> str:
        return self.render(str)

    def render(self, name_of: Callable[[str], str]) -> str:
        """Return the text with options named by ``name_of``."""
        text, *values = self.args
        return Formatter().vformat(text, values, _Names(name_of))


class _Names(dict[str, str]):
    def __init__(self, name_of: Callable[[str], str]) -> None:
        self._name_of = name_of

    def __missing__(self, name: str) -> str:
        return self._name_of(name)


def option(default: Any, kind: Kind[Any], help: str = "", metavar: str | None = None) -> Any:
    """Return a field of `Options`; a callable ``default`` creates the default.

    ``help`` and ``metavar`` are for the flag, and ``%(default)s`` in ``help`` is the default.
    """
    metadata = {"kind": kind, "help": help, "metavar": metavar}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Options:
    """A base class that validates all options; raises `OptionError`.

    None is valid for an option that is None by default.
    """

    def __post_init__(self) -> None:
        for entry in _entries(type(self)):
            value = getattr(self, entry.name)
            if value is None and entry.default is None:
                continue
            try:
                object.__setattr__(self, entry.name, entry.metadata["kind"].read(value))
            except ValueError as error:
                raise OptionError(f"{{{entry.name}}}: {{0}}", error) from None


def _entries(options: type[Options]) -> list[Field[Any]]:
    return [entry for entry in fields(options) if entry.metadata]


def _default_of(entry: Field[Any]) -> Any:
    return entry.default if entry.default_factory is MISSING else entry.default_factory()


def option_names(options: type[Options]) -> tuple[str, ...]:
    """Return the names of all options of a class."""
    return tuple(entry.name for entry in _entries(options))


def flag_of(name: str) -> str:
    """Return the flag of an option: ``--timeout`` for ``timeout_s``."""
    return _SINGULAR.get(name) or f"--{name.removesuffix('_s').replace('_', '-')}"


def add_flags(add: Callable[..., Any], options: type[Options], *names: str, **helps: str) -> None:
    """Add the flags of these options by ``add``, the method `add_argument` of a parser or group.

    ``helps`` are help texts for options that mean something more precise to the command.
    """
    entries = {entry.name: entry for entry in _entries(options)}
    for name in (*names, *helps):
        about, more = entries[name].metadata, dict[str, Any]()
        kind: Kind[Any] = about["kind"]
        if kind.action != "store_true":
            more["metavar"] = about["metavar"] or "|".join(kind.choices) or None
        if kind.action != "store_true":
            more["type"] = kind if kind.action == "store" else kind.place
        more["default"] = [] if kind.action == "append" else _default_of(entries[name])
        text = helps.get(name) or about["help"]
        add(flag_of(name), dest=name, action=kind.action, help=text, **more)


def options_in(arguments: Namespace, options: type[Options]) -> dict[str, Any]:
    """Return the values of all options of a class for which the command has a flag."""
    given = vars(arguments)
    return {name: given[name] for name in option_names(options) if name in given}


def roles_of(options: Options) -> Iterator[Role]:
    """Yield the paths among the options."""
    for entry in _entries(type(options)):
        place, value = entry.metadata["kind"].place, getattr(options, entry.name)
        if place is not None and value is not None:
            for each in value if isinstance(value, tuple) else [value]:
                yield Role(entry.name, entry.name, place, each)


def command_text(error: TensoroptError) -> str:
    """Return the text of an error for the user of a command."""
    return error.render(flag_of) if isinstance(error, OptionError) else str(error)


def keywords_of(arguments: type[Any], defaults: Mapping[str, Any]) -> list[inspect.Parameter]:
    """Return a keyword parameter for each key of the TypedDict ``arguments``."""
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults[name],
            annotation=reference.__forward_arg__,
        )
        for name, reference in arguments.__annotations__.items()
    ]


def shows_options(options: type[Options], arguments: type[Any]) -> Callable[[F], F]:
    """Return a decorator that lists keyword arguments in the signature, as `help` prints it.

    ``arguments`` is the TypedDict of a function's ``**options``, and ``options`` has the defaults.
    """
    defaults = {entry.name: _default_of(entry) for entry in _entries(options)}
    keywords = keywords_of(arguments, defaults)

    def show(function: F) -> F:
        signature = inspect.signature(function)
        named = [own for own in signature.parameters.values() if own.kind != own.VAR_KEYWORD]
        shown = signature.replace(parameters=[*named, *keywords])
        function.__signature__ = shown  # type: ignore[attr-defined]
        return function

    return show
