"""Symbolic dimensions: their sizes, and names that are arithmetic, such as `past + sequence`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence

from tensoropt.runtime.support.errors import UserError

__all__ = ["MAX_SIZE", "bound", "dim_flags", "parse_dims", "terms", "unnamed"]

MAX_SIZE = 2**31


def parse_dims(texts: Sequence[str]) -> dict[str, int]:
    """Return the sizes in ``--dim`` texts such as ``batch=8`` by the name of the dimension."""
    dims: dict[str, int] = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        if not name:
            raise UserError(f"--dim: expected NAME=SIZE such as batch=8, got: '{text}'")
        if name in dims:
            raise UserError(f"--dim: '{name}' is given twice, expected one size, got: '{text}'")
        if not size.isdecimal() or int(size) > MAX_SIZE:
            raise UserError(
                f"--dim {name}: expected a whole number from 0 to {MAX_SIZE}, got: '{size}'"
            )
        dims[name] = int(size)
    return dims


def dim_flags(names: Iterable[str], size: str) -> str:
    """Return the flags that give ``names`` a size, as a shell wants them."""
    return " ".join(f"--dim {shlex.quote(f'{name}={size}')}" for name in names)


def unnamed(tensor: str, index: int) -> str:
    """Return the name of a dimension that a model gives none: `x:0` for the first one of `x`."""
    return f"{tensor}:{index}"


def terms(name: str) -> list[str]:
    """Return the names that the size of dimension ``name`` is made of, itself if of no other.

    >>> terms("past + 2*sequence")
    ['past', 'sequence']
    """
    return [factor for term in _sum(name) for factor in term if not factor.isdecimal()]


def bound(name: str, sizes: Mapping[str, int]) -> int | str:
    """Return the size of dimension ``name``, or what its name becomes where some is not known.

    >>> bound("past + 1", {"past": 12}), bound("past + sequence", {"past": 12})
    (13, '12 + sequence')
    """
    if name in sizes:
        return sizes[name]
    factors = [[_factor(text, sizes) for text in term] for term in _sum(name)]
    if all(isinstance(factor, int) for term in factors for factor in term):
        return sum(math.prod(map(int, term)) for term in factors)
    if not any(text in sizes for text in terms(name)):
        return name
    return " + ".join("*".join(map(str, term)) for term in factors)


def _factor(text: str, sizes: Mapping[str, int]) -> int | str:
    return int(text) if text.isdecimal() else sizes.get(text, text)


def _sum(name: str) -> list[list[str]]:
    return [[factor.strip() for factor in term.split("*")] for term in name.split("+")]
