"""Size and spread of an output, to which differences are relative."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tensoropt.runtime.support.dtypes import Array

__all__ = ["OutputScale", "chunks", "scale_of", "why_blind"]

_CHUNK = 1 << 20  # elements at a time, which bounds the float64 copies

_LEAST = 10
"""Smallest spread of an output, in multiples of its rounding, at which differences show."""


@dataclass(frozen=True)
class OutputScale:
    """Statistics of the finite elements: ``count``, ``mean``, rms ``deviation``, ``largest``.

    ``size`` counts all elements; ``largest`` is a magnitude.
    """

    size: int
    count: int
    mean: float
    deviation: float
    largest: float


def chunks(array: Array) -> Iterator[Array]:
    """Yield the elements in order as float64, in chunks of bounded size."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK].astype(np.float64)


def scale_of(array: Array) -> OutputScale:
    """Return the scale of an array of numbers; the deviation of a single number is from 0."""
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
    """Return why a comparison with this output is inconclusive, None if it is conclusive.

    ``rounding`` is the error that a correct run may have everywhere, 0 for whole numbers.
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
