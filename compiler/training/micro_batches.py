"""Candidate numbers of micro-batches, if the search is to choose the number."""

from __future__ import annotations

from tensoropt.compiler.support.choices import whole_number
from tensoropt.compiler.support.errors import UserError

__all__ = ["AUTO", "MOST", "are_several", "check_text", "is_searched", "numbers_of"]

AUTO = "auto"
MOST = 2**20
_FLAG = "--micro-batches"


def is_searched(text: str) -> bool:
    """Return whether ``text`` leaves the number to the search: `auto`, or a range such as 1..8."""
    return text == AUTO or ".." in text


def are_several(text: str) -> bool:
    """Return whether ``text`` names several micro-batches, or lets the search choose several."""
    return text != "1"


def check_text(text: str) -> None:
    """Raise UserError if ``text``, which leaves the number to the search, is not a valid range."""
    if text != AUTO:
        _bounds(text)


def _bounds(text: str) -> tuple[int, int]:
    first, _, last = text.partition("..")
    bounds = whole_number(_FLAG, first, 1, MOST), whole_number(_FLAG, last, 1, MOST)
    if bounds[0] > bounds[1]:
        raise UserError(f"{_FLAG}: expected first..last, such as 1..8, got: '{text}'")
    return bounds


def numbers_of(text: str, samples: int) -> list[int]:
    """Return the numbers named by ``text`` that divide ``samples`` into equal parts.

    `auto` names the powers of two. Raises UserError if no number divides ``samples``.
    """
    if text == AUTO:
        named = [2**power for power in range(samples.bit_length())]
    else:
        first, last = _bounds(text)
        named = [*range(first, min(last, samples) + 1)]
    numbers = [number for number in named if samples % number == 0]
    if not numbers:
        raise UserError(f"{_FLAG} {text}: expected a number that divides {samples} samples")
    return numbers
