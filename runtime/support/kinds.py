"""Kinds of values that options take, from Python or as the text of a flag."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Generic, TypeVar

from tensoropt.runtime.support.errors import did_you_mean
from tensoropt.runtime.support.places import INPUT, Place

__all__ = [
    "LIBRARIES",
    "MAX_SIZE",
    "RANGE",
    "SECONDS",
    "SIZES",
    "SWITCH",
    "Kind",
    "choice",
    "integer",
    "number",
    "path",
]

MAX_SIZE = 2**31
"""The largest size of a dimension."""

_SHOWN = 40  # characters of a refused value

T = TypeVar("T")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of value; also an argument type of argparse.

    ``take`` converts a value from Python. It raises TypeError or ValueError for a value that is not
    as ``expected``. ``parse`` converts the text of a flag to a value for ``take``. ``action`` is
    the action of such a flag, and ``choices`` are all valid values if they are words. A path has a
    ``place``.
    """

    expected: str
    take: Callable[[Any], T]
    parse: Callable[[str], Any] = str
    action: str = "store"
    choices: Sequence[str] = ()
    place: Place | None = None

    def read(self, value: object) -> T:
        """Return a valid value in its own type; raises ValueError with the reason."""
        try:
            return self.take(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(self._refusal(value)) from None

    def __call__(self, text: str) -> T:
        try:
            return self.take(self.parse(text))
        except (TypeError, ValueError, OverflowError):
            from argparse import ArgumentTypeError  # ranks read no flags

            raise ArgumentTypeError(self._refusal(text)) from None

    def _refusal(self, value: object) -> str:
        near = did_you_mean(value, self.choices)
        return f"expected {self.expected}, got: {repr(value)[:_SHOWN]}{near}"


def integer(low: int, high: int | None = None) -> Kind[int]:
    """Return the kind of whole numbers from ``low`` to ``high``, both included."""

    def take(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError
        if int(value) < low or (high is not None and int(value) > high):
            raise ValueError
        return int(value)

    return Kind(f"a whole number from {low}{'' if high is None else f' to {high}'}", take, int)


def number(low: float, high: float | None = None, *, is_above: bool = False) -> Kind[float]:
    """Return the kind of finite numbers from ``low`` to ``high``, both included.

    If it ``is_above``, without ``low``.
    """
    first, more = ("above", ", at most") if is_above else ("from", " to")
    expected = f"a number {first} {low:g}" + ("" if high is None else f"{more} {high:g}")

    def is_valid(value: float) -> bool:
        is_from = value > low if is_above else value >= low
        return is_from and (high is None or value <= high)

    return _real(expected, is_valid)


def choice(*choices: str) -> Kind[str]:
    """Return the kind of these words."""

    def take(value: str) -> str:
        if value not in choices:
            raise ValueError
        return value

    *most, last = map(repr, choices)
    return Kind(f"{', '.join(most)} or {last}", take, choices=choices)


def path(place: Place) -> Kind[str]:
    """Return the kind of paths to an input or an output."""
    return Kind("a path", _take_path, place=place)


def _real(expected: str, is_valid: Callable[[float], bool]) -> Kind[float]:
    def take(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError
        if not is_valid(float(value)) or not math.isfinite(value):
            raise ValueError
        return float(value)

    return Kind(expected, take, float)


def _take_switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _take_path(value: str | os.PathLike[str]) -> str:
    path = os.fspath(value)
    if not isinstance(path, str):
        raise TypeError
    return path


def _take_libraries(value: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError
    return tuple(str(Path(path).resolve()) for path in value)


def _take_sizes(value: Mapping[str, object]) -> dict[str, int | str]:
    return {name: _take_size(size) for name, size in dict(value).items()}


def _take_size(size: Any) -> int | str:
    """Return a size, or a range as text: ranks read it as JSON."""
    if isinstance(size, str) and re.fullmatch(r"\d+\.\.\d+(:\d+)?", size):
        return size
    if isinstance(size, tuple):
        first, last = size
        size = range(first, last + 1)
    if not isinstance(size, range):
        return _SIZE.take(size)
    if not size or size.step < 1:
        raise ValueError
    first, last = _SIZE.take(size[0]), _SIZE.take(size[-1])
    step = "" if size.step == 1 else f":{size.step}"
    return first if first == last else f"{first}..{last}{step}"


def _take_range(value: Sequence[int]) -> tuple[int, int]:
    low, high = value
    if not isinstance(low, Integral) or not isinstance(high, Integral) or low >= high:
        raise ValueError
    return int(low), int(high)


def _parse_range(text: str) -> tuple[int, ...]:
    return tuple(int(bound) for bound in text.split(":"))


_SIZE = integer(0, MAX_SIZE)

SECONDS = _real("seconds above 0", lambda value: value > 0)
SWITCH = Kind("True or False", _take_switch, action="store_true")
LIBRARIES = Kind("a list of paths", _take_libraries, action="append", place=INPUT)
SIZES = Kind(
    f"a dictionary of sizes from 0 to {MAX_SIZE}, or of their ranges, by name",
    _take_sizes,
    action="append",
)
RANGE = Kind("LO:HI, whole numbers with LO below HI", _take_range, _parse_range)
