"""How large an output is, and how far its elements lie apart: what differences are held against."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tensoropt.runtime.support.dtypes import Array

__all__ = ["OutputScale", "chunks", "scale_of", "why_blind"]

_CHUNK = 1 << 20  # elements at a time, which bounds the float64 copies

_LEAST = 10
"""So many times the rounding of an output its spread must be, or differences are not seen."""


@dataclass(frozen=True)
class OutputScale:
    """Of the finite among ``size`` elements: ``count``, ``mean``, rms ``deviation``, ``largest``
    magnitude."""

    size: int
    count: int
    mean: float
    deviation: float
    largest: float


def chunks(array: Array) -> Iterator[Array]:
    """Yield the elements in order as float64, so many at a time."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK].astype(np.float64)


def scale_of(array: Array) -> OutputScale:
    """Return the spread of an array of numbers; a single one lies as far from 0 as it is large."""
    count, total, largest = 0, 0.0, 0.0
    for values in map(_finite, chunks(array)):
        count += values.size
        total += float(values.sum())
        largest = max(largest, float(np.abs(values).max(initial=0.0)))
    mean = total / count if count else 0.0
    if array.size == 1:
        return OutputScale(1, count, 0.0, largest, largest)
    squares = sum(float(np.square(values - mean).sum()) for values in map(_finite, chunks(array)))
    deviation = math.sqrt(squares / count) if count else 0.0
    return OutputScale(array.size, count, mean, deviation, largest)


def _finite(array: Array) -> Array:
    finite: Array = array[np.isfinite(array)]
    return finite


def why_blind(spread: OutputScale, rounding: float) -> str | None:
    """Return why a comparison with such an output shows nothing; ``None`` if it shows something.

    ``rounding`` is what a right run may be off everywhere, 0 for whole numbers.
    """
    if not spread.size:
        return "is empty"
    if not spread.count:
        return "is NaN or infinite throughout"
    if spread.size > 1 and spread.deviation <= 1e-12 * spread.largest:
        return "is constant"
    if rounding and not spread.largest:
        return "is zero"
    if spread.deviation < _LEAST * rounding:
        return "is lost in rounding"
    return None
