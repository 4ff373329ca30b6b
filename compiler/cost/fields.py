"""Typed access to a TOML table, with errors that name the file and the key."""

from __future__ import annotations

import math
from typing import Any

from tensoropt.compiler.support.errors import UserError, did_you_mean

__all__ = ["Table"]


class Table:
    """One table of a file, which records the keys that were read.

    Every reader raises :class:`UserError` if the key is missing or its value has another type.
    """

    def __init__(self, file: str, name: str, values: dict[str, Any]) -> None:
        self._file, self._name, self._values = file, name, values
        self._read: list[str] = []

    def table(self, key: str) -> Table:
        """Return the table under ``key``."""
        value = self._value(key, "a table")
        if not isinstance(value, dict):
            raise self._wrong(key, "a table", value)
        return Table(self._file, self._path(key), value)

    def optional(self, key: str) -> Table:
        """Return the table under ``key``, empty if the key is absent."""
        self._values.setdefault(key, {})
        return self.table(key)

    def names(self) -> list[str]:
        """Return all keys, in the order of the file."""
        return list(self._values)

    def where(self, key: str) -> str:
        """Return the file and the full name of ``key``, for an error message."""
        return f"{self._file}: '{self._path(key)}'"

    def text(self, key: str) -> str:
        """Return the string under ``key``."""
        value = self._value(key, "a string")
        if not isinstance(value, str):
            raise self._wrong(key, "a string", value)
        return value

    def number(self, key: str, at_least: float = 0.0, at_most: float = math.inf) -> float:
        """Return the number under ``key``: positive, finite, and within the bounds."""
        wanted = "a positive number"
        wanted += f" of at least {at_least:g}" if at_least else ""
        wanted += f" up to {at_most:g}" if at_most < math.inf else ""
        value = self._value(key, wanted)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < math.inf or not at_least <= value <= at_most:
            raise self._wrong(key, wanted, value)
        return float(value)

    def amount(self, key: str, at_most: float = math.inf) -> float:
        """Return the number under ``key``, which may be 0; 0 if the key is absent."""
        if self._values.get(key, 0) != 0:
            return self.number(key, at_most=at_most)
        self._read.append(key)
        return 0.0

    def maybe(self, key: str) -> float | None:
        """Return the number under ``key``, which may be 0; ``None`` if the key is absent."""
        if key in self._values:
            return self.amount(key)
        self._read.append(key)
        return None

    def maybe_text(self, key: str) -> str | None:
        """Return the string under ``key``; ``None`` if the key is absent."""
        if key in self._values:
            return self.text(key)
        self._read.append(key)
        return None

    def flag(self, key: str) -> bool:
        """Return the boolean under ``key``."""
        value = self._value(key, "true or false")
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def tables(self, key: str) -> list[Table]:
        """Return the list of tables under ``key``, empty if the key is absent."""
        self._read.append(key)
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self._wrong(key, "a list of tables", value)
        return [Table(self._file, self._path(key), item) for item in value]

    def texts(self, key: str) -> tuple[tuple[str, ...], ...]:
        """Return the lists of strings under ``key``, empty if the key is absent."""
        self._read.append(key)
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(map(_is_texts, value)):
            raise self._wrong(key, "a list of lists of strings", value)
        return tuple(map(tuple, value))

    def lines(self, key: str) -> tuple[tuple[float, float], ...]:
        """Return the pairs (start, slope) under ``key``.

        There is at least one pair, the first start is positive, and no slope is negative.
        """
        wanted = "a list of pairs [start, slope], the first start positive, no slope negative"
        value = self._value(key, wanted)
        if not isinstance(value, list) or not value or not all(map(_is_line, value)):
            raise self._wrong(key, wanted, value)
        if value[0][0] <= 0:
            raise self._wrong(key, wanted, value)
        return tuple((float(a), float(b)) for a, b in value)

    def row(self, key: str) -> tuple[float, ...]:
        """Return the positive, finite numbers of the list under ``key``; at least one."""
        wanted = "a list of positive numbers"
        value = self._value(key, wanted)
        if not isinstance(value, list) or not value or not all(map(_is_positive, value)):
            raise self._wrong(key, wanted, value)
        return tuple(map(float, value))

    def count(self, key: str) -> int:
        """Return the positive integer under ``key``."""
        wanted = "a positive integer"
        value = self._value(key, wanted)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self._wrong(key, wanted, value)
        return value

    def numbers(self, *required: str) -> tuple[tuple[str, float], ...]:
        """Return all (key, positive number) pairs, sorted; the ``required`` keys must exist."""
        keys = sorted({*self._values, *required})
        return tuple((key, self.number(key)) for key in keys)

    def reject_unread(self) -> None:
        """Raise :class:`UserError` for the first key that was never read."""
        for key in self._values:
            if key not in self._read:
                valid = ", ".join(self._read)
                raise UserError(
                    f"{self._file}: unknown key, expected one of {valid}, "
                    f"got: '{self._path(key)}'{did_you_mean(key, self._read)}"
                )

    def _value(self, key: str, wanted: str) -> Any:
        self._read.append(key)
        if key not in self._values:
            raise UserError(f"{self._file}: '{self._path(key)}': expected {wanted}, got: nothing")
        return self._values[key]

    def _wrong(self, key: str, wanted: str, value: Any) -> UserError:
        return UserError(f"{self._file}: '{self._path(key)}': expected {wanted}, got: {value!r}")

    def _path(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_line(value: object) -> bool:
    if not isinstance(value, list) or len(value) != 2 or not all(map(_is_number, value)):
        return False
    return bool(value[1] >= 0)


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and _is_number(value) and value > 0


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value)
