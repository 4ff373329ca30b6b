"""Layers of a model, from the names of its nodes or from repetition in the program."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from tensoropt.runtime.plan.entries import StrategyEntry

__all__ = ["numbered_scopes", "repeats", "row_layers"]

_ENOUGH = 0.5
"""Smallest fraction of ops that need a layer in their names, or names are not used."""
_SHORTEST, _LONGEST = 4, 5000
"""Least ops in a layer; most ops in a program that is searched for repetition."""


def row_layers(rows: Sequence[StrategyEntry]) -> list[str]:
    """Return the layer of each row of a plan; start and end surround the numbered layers."""
    scopes = numbered_scopes([row["node"] for row in rows])
    if sum(scope is not None for scope in scopes) < _ENOUGH * len(rows):
        scopes = [None] * len(rows)
        kinds = [(r["op"], str(r["operands"]), str(r["results"])) for r in rows]
        number = 0
        for start, period, count in repeats(kinds):
            for turn in range(count):
                first = start + turn * period
                scopes[first : first + period] = [f"block {number}"] * period
                number += 1
    named = [at for at, scope in enumerate(scopes) if scope is not None]
    if not named:
        return ["model"] * len(rows)
    found, last = [], "start"
    for at, scope in enumerate(scopes):
        last = scope or ("end" if at > named[-1] else last)
        found.append(last)
    return found


def numbered_scopes(names: Sequence[str]) -> list[str | None]:
    """Return the numbered layer in each node name, None if it has none.

    For ``/model/layers.3/mlp/MatMul`` it is ``model/layers.3``, if another name has another number
    there. Parts with a point or underscore before the number come first: in
    ``layer1/layer1.0/conv1`` the second part is the list of layers.
    """
    found = [_scopes(name) for name in names]
    numbers: dict[str, set[str]] = {}
    for scopes in found:
        for template, scope in scopes:
            numbers.setdefault(template, set()).add(scope)
    return [
        next((scope for template, scope in scopes if len(numbers[template]) > 1), None)
        for scopes in found
    ]


def _scopes(name: str) -> list[tuple[str, str]]:
    """Return (template, scope) of each numbered part of a name, except for the last part.

    ``/model/layers.3/mlp/MatMul`` has one: ``model/layers.*`` and ``model/layers.3``.
    """
    parts = name.strip("/").split("/")
    found = []
    for at, part in enumerate(parts[:-1]):
        numbered = re.fullmatch(r"(.*?)([._]?)(\d+)", part)
        if numbered:
            template = "/".join([*parts[:at], f"{numbered[1]}.*"])
            found.append((not numbered[2], template, "/".join(parts[: at + 1])))
    return [(template, scope) for _, template, scope in sorted(found, key=lambda row: row[0])]


def repeats(kinds: Sequence[Hashable]) -> list[tuple[int, int, int]]:
    """Return (start, period, turns) of each repetition in a program, in order.

    Takes the run that covers the most ops first, then recurses to its left and right. Returns
    nothing for more than 5,000 ops. O(n^2) in the number of ops.
    """
    if len(kinds) > _LONGEST:
        return []
    known: dict[Hashable, int] = {}
    numbers = [known.setdefault(kind, len(known)) for kind in kinds]
    return _runs(np.array(numbers, dtype=np.int64), 0)


def _runs(kinds: npt.NDArray[np.int64], base: int) -> list[tuple[int, int, int]]:
    best = _longest(kinds)
    if best is None:
        return []
    start, period, count = best
    end = start + period * count
    left, right = _runs(kinds[:start], base), _runs(kinds[end:], base + end)
    return [*left, (base + start, period, count), *right]


def _longest(kinds: npt.NDArray[np.int64]) -> tuple[int, int, int] | None:
    """Return the run that covers the most ops; of equal runs, the run of the shortest period."""
    best, covered = None, 0
    for period in range(_SHORTEST, len(kinds) // 2 + 1):
        equal = np.concatenate(([0], (kinds[:-period] == kinds[period:]).astype(np.int8), [0]))
        change = np.flatnonzero(np.diff(equal))
        for begin, end in zip(change[::2].tolist(), change[1::2].tolist(), strict=True):
            count = (end - begin) // period + 1
            if count > 1 and period * count > covered:
                best, covered = (begin, period, count), period * count
    return best
