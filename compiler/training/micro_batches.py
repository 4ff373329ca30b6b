"""In how many micro-batches a step takes its samples, where the search is to say so."""

from __future__ import annotations

from tensoropt.compiler.support.choices import whole_number
from tensoropt.compiler.support.errors import UserError

__all__ = ["AUTO", "MOST", "check_text", "is_searched", "numbers_of"]

AUTO = "auto"
MOST = 2**20
_FLAG = "--micro-batches"


def is_searched(text: str) -> bool:
    """Say whether ``text`` leaves the number to the search: `auto`, or a range such as 1..8."""
    return text == AUTO or ".." in text


def check_text(text: str) -> None:
    """Raise UserError for what leaves the number to the search, but is no range."""
    if text != AUTO:
        _bounds(text)


def _bounds(text: str) -> tuple[int, int]:
    first, _, last = text.partition("..")
    bounds = whole_number(_FLAG, first, 1, MOST), whole_number(_FLAG, last, 1, MOST)
    if bounds[0] > bounds[1]:
        raise UserError(f"{_FLAG}: expected first..last, such as 1..8, got: '{text}'")
    return bounds


def numbers_of(text: str, samples: int) -> list[int]:
    """Return in how many equal parts ``samples`` can be cut, of the numbers that ``text`` names.

    `auto` names the powers of two. Raises UserError where there is none.
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
