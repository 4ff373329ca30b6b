"""Validation of words and numbers given as text."""

from __future__ import annotations

from collections.abc import Iterable

from tensoropt.compiler.support.errors import UserError, did_you_mean

__all__ = ["check_known", "whole_number"]


def check_known(what: str, word: str, choices: Iterable[str]) -> None:
    """Raise :class:`UserError` with the ``choices``, and the nearest, unless ``word`` is valid."""
    valid = list(choices)
    if word not in valid:
        listed = ", ".join(valid) or "none"
        raise UserError(f"{what} '{word}', valid choices are {listed}{did_you_mean(word, valid)}")


def whole_number(what: str, text: str, least: int, most: int) -> int:
    """Return the whole number in ``text``; an error names ``what`` and the bounds."""
    number = int(text) if text.strip().lstrip("+-").isdecimal() else None
    if number is None or not least <= number <= most:
        raise UserError(f"{what}: expected a whole number from {least} to {most}, got: '{text}'")
    return number
