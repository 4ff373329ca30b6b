"""Symbolic dimensions: their sizes, and names that are arithmetic, such as `past + sequence`."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.kinds import MAX_SIZE

__all__ = [
    "Sizes",
    "bound",
    "default_name",
    "dim_flags",
    "divisor",
    "divisor_of",
    "has_number",
    "mean_of",
    "parse_ranges",
    "sizes_in_words",
    "sizes_text",
    "terms",
]

Sizes = int | range
"""An open dimension: its size, or the range of sizes that it may have."""

_RANGE = re.compile(r"([0-9]{1,10})\.\.([0-9]{1,10})(?::([0-9]{1,10}))?")


def parse_ranges(texts: Sequence[str]) -> dict[str, Sizes]:
    """Return the sizes or ranges in ``--dim`` texts: ``past=1..4096``, ``batch=8..64:8``.

    The last size of a range must be a whole number of steps from the first. A range of one size
    becomes that size.
    """
    dims: dict[str, Sizes] = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        if not name:
            raise UserError(f"--dim: expected NAME=SIZE such as batch=8, got: '{text}'")
        if name in dims:
            raise UserError(f"--dim: '{name}' is given twice, expected one size, got: '{text}'")
        dims[name] = _size_or_range(name, size)
    return dims


def _size(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_SIZE:
        raise UserError(
            f"--dim {name}: expected a whole number from 0 to {MAX_SIZE}, got: '{text}'"
        )
    return int(text)


def _size_or_range(name: str, text: str) -> Sizes:
    if ".." not in text:
        return _size(name, text)
    found = _RANGE.fullmatch(text)
    if found is None:
        raise UserError(
            f"--dim {name}: expected FIRST..LAST or FIRST..LAST:STEP such as 1..4096 or 8..64:8, "
            f"got: '{text}'"
        )
    first, last = _size(name, found[1]), _size(name, found[2])
    step = _size(name, found[3] or "1")
    if last < first:
        raise UserError(f"--dim {name}: expected the smaller size first, got: '{text}'")
    if last == 0:
        raise UserError(f"--dim {name}: expected sizes above 0, got: '{text}'")
    if step == 0:
        raise UserError(f"--dim {name}: expected a step of 1 or more, got: '{text}'")
    if (last - first) % step:
        nearest = first + (last - first) // step * step
        raise UserError(
            f"--dim {name}: expected a step that leads from {first} to {last}, got: '{text}', "
            f"which ends at {nearest}"
        )
    return first if first == last else range(first, last + 1, step)


def sizes_text(sizes: Sizes) -> str:
    """Return sizes in the syntax of ``--dim``: 8, 1..4096, 8..64:8; inverse of `parse_ranges`."""
    if isinstance(sizes, int):
        return str(sizes)
    step = "" if sizes.step == 1 else f":{sizes.step}"
    return f"{sizes[0]}..{sizes[-1]}{step}"


def sizes_in_words(sizes: range) -> str:
    """Return a range in words for messages: from 8 to 64 in steps of 8; 8 for that size alone."""
    if len(sizes) == 1:
        return str(sizes[0])
    steps = "" if sizes.step == 1 else f" in steps of {sizes.step}"
    return f"from {sizes[0]} to {sizes[-1]}{steps}"


def mean_of(sizes: Sizes) -> int:
    """Return the median size, the smaller of the two if their number is even."""
    return sizes if isinstance(sizes, int) else sizes[(len(sizes) - 1) // 2]


def divisor(sizes: Sizes) -> int:
    """Return the greatest common divisor of the sizes.

    >>> divisor(range(8, 65, 8)), divisor(range(4, 65, 6)), divisor(range(1, 4097))
    (8, 2, 1)
    """
    return sizes if isinstance(sizes, int) else math.gcd(sizes[0], sizes.step)


def divisor_of(name: str, dims: Mapping[str, Sizes]) -> int:
    """Return a common divisor of dimension ``name``, which may be arithmetic, over all ``dims``.

    >>> divisor_of("2*batch + past", {"batch": range(4, 65, 4), "past": range(0, 65, 16)})
    8
    """
    if name in dims:
        return divisor(dims[name])
    products = (
        math.prod(int(text) if text.isdecimal() else divisor(dims.get(text, 1)) for text in term)
        for term in _sum(name)
    )
    return math.gcd(*products)


def dim_flags(names: Iterable[str], size: str) -> str:
    """Return the ``--dim`` flags that set each of ``names`` to ``size``, quoted for a shell."""
    return " ".join(f"--dim {shlex.quote(f'{name}={size}')}" for name in names)


def default_name(tensor: str, index: int) -> str:
    """Return the name of a dimension that the model does not name: `x:0` for the first of `x`."""
    return f"{tensor}:{index}"


def terms(name: str) -> list[str]:
    """Return the names that the arithmetic of dimension ``name`` reads, or ``name`` itself.

    >>> terms("past + 2*sequence")
    ['past', 'sequence']
    """
    return [factor for term in _sum(name) for factor in term if not factor.isdecimal()]


def has_number(name: str) -> bool:
    """Return whether the arithmetic of dimension ``name`` has a number in it.

    >>> has_number("12 + sequence"), has_number("past + sequence")
    (True, False)
    """
    return any(factor.isdecimal() for term in _sum(name) for factor in term)


def bound(name: str, sizes: Mapping[str, int]) -> int | str:
    """Return the size of dimension ``name``, or its simplified name if a size is missing.

    >>> bound("past + 1", {"past": 12}), bound("past + sequence", {"past": 12})
    (13, '12 + sequence')
    """
    if name in sizes:
        return sizes[name]
    factors = [
        [int(text) if text.isdecimal() else sizes.get(text, text) for text in term]
        for term in _sum(name)
    ]
    if all(isinstance(factor, int) for term in factors for factor in term):
        return sum(math.prod(map(int, term)) for term in factors)
    if not any(text in sizes for text in terms(name)):
        return name
    return " + ".join("*".join(map(str, term)) for term in factors)


def _sum(name: str) -> list[list[str]]:
    return [[factor.strip() for factor in term.split("*")] for term in name.split("+")]
