"""Comparison of a run's outputs with the outputs of the one-device run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensoropt.runtime.check.results import OutputResult
from tensoropt.runtime.check.scale import OutputScale, chunks, scale_of, why_blind
from tensoropt.runtime.support.dtypes import STRING, Array, name_of
from tensoropt.runtime.support.job import Job

__all__ = ["blindness", "compare", "describe", "largest_difference"]

# Tolerances relative to the element's distance from the mean, to the spread of all elements, and to
# the largest element, which sets the rounding error: some hundred to a thousand roundings of the
# type, as a sum in another order produces them.
_TOLERANCES = {
    "float64": (1e-3, 1e-4, 1e-7),
    "float32": (1e-3, 1e-4, 1e-5),
    "float16": (1e-2, 1e-2, 2e-3),
    "bfloat16": (5e-2, 5e-2, 1.6e-2),
}
# On CUDA, products of float32 are computed in TF32, which rounds operands to float16's 10 bits.
_AS_ON_CUDA = {"float32": "float16"}
_COARSE = (2e-1, 2e-1, 1e-1)  # the float8 types

# For models that round intermediates to 8 bits: a sum in another order, or in integers, may round
# to the next step, which later layers spread. Runs of ONNX Runtime differ this much, fused or not.
_STEPS, _ALL_STEPS = 4, 255

_TINY = 1e-300

_NOISE = 10
"""A correct run may be off by this multiple of the one-device run's own rounding noise."""


def describe(name: str, array: Array) -> OutputResult:
    """Return an output's name, type and shape, without a verdict."""
    return OutputResult(name, name_of(array.dtype), array.shape)


def blindness(expected: Array, job: Job) -> str | None:
    """Return why a comparison with ``expected`` is inconclusive, None if it is conclusive."""
    if expected.dtype.hasobject:
        return "is constant" if expected.size > 1 and len({*expected.flat}) == 1 else None
    spread = scale_of(expected)
    return why_blind(spread, _rounding(expected, job, spread))


def _rounding(expected: Array, job: Job, spread: OutputScale) -> float:
    """Return the rounding error that a correct run may have everywhere; 0 for whole numbers."""
    if expected.dtype.kind not in "fV":
        return 0.0
    return max(_tolerances(expected.dtype.name, job)[2] * spread.largest, _TINY)


def compare(
    name: str,
    found: Array,
    expected: Array,
    job: Job,
    is_quantised: bool = False,
    again: Callable[[], Array | None] = lambda: None,
) -> OutputResult:
    """Compare one output with the output of the one-device run.

    An element passes within the tolerances of its type (for float32 on CUDA, the tolerances of
    float16), which are relative to the spread of the output. A tolerance set by the job is relative
    to the element itself, or absolute. All other elements must be equal; a NaN or an infinity only
    passes against the same value. An output that is constant or lost in rounding is inconclusive:
    it passes within the tolerances for a spread of 1, and the result is marked.
    ``again`` returns the one-device run's output from a run with other rounding. It is called if
    the difference is small in absolute terms but not relative to the spread, which may itself be
    rounding. If the model ``is_quantised``, a difference of 4 of 255 steps of the largest value, or
    of 4 steps of 8-bit integers, passes with a note.
    """
    if found.dtype != expected.dtype or found.shape != expected.shape:
        shape = "x".join(map(str, expected.shape)) or "scalar"
        note = f"expected {name_of(expected.dtype)} {shape}"
        return OutputResult(name, name_of(found.dtype), found.shape, passed=False, note=note)
    if expected.dtype.kind in "fV":
        result, blind = _compare_floats(name, found, expected, job, again)
    else:
        result, blind = _compare_exact(name, found, expected), blindness(expected, job)
    if is_quantised and not result.passed and job.atol is None:
        result = _within_steps(result, expected)
    if blind is None:
        return result
    # A pass is no evidence here: a wrong plan could pass too.
    note = f"{result.note}, {blind}" if result.note else blind
    return replace(result, shows=False, note=f"{note}: shows nothing" if result.passed else note)


def _within_steps(result: OutputResult, expected: Array) -> OutputResult:
    """Return the result as passed if it is off by only a few steps of 8 bits."""
    whole = expected.dtype.kind in "iu" and expected.dtype.itemsize == 1
    is_float = expected.dtype.kind in "fV"
    if result.absolute is None or "NaN" in result.note or not (whole or is_float):
        return result
    step = 1.0 if whole else _largest(np.abs(expected.astype(np.float64))) / _ALL_STEPS
    if result.absolute > _STEPS * step:
        return result
    return replace(result, passed=True, note=f"within {_STEPS} steps of 8 bits")


def _tolerances(dtype: str, job: Job) -> tuple[float, float, float]:
    if job.provider == "cuda":
        dtype = _AS_ON_CUDA.get(dtype, dtype)
    return _TOLERANCES.get(dtype, _COARSE)


def _compare_exact(name: str, found: Array, expected: Array) -> OutputResult:
    different = int(np.count_nonzero(found != expected))
    note, passed = f"{different} of {found.size} differ" if different else "", different == 0
    if expected.dtype.hasobject:  # strings have no distance
        return OutputResult(name, STRING, found.shape, passed=passed, note=note)
    a, b = found.astype(np.float64), expected.astype(np.float64)
    largest, relative = _largest(np.abs(a - b)), _largest(_ratios(a, b, 0.0))
    return OutputResult(name, found.dtype.name, found.shape, largest, relative, passed, note)


@dataclass(frozen=True)
class _Margin:
    """Tolerance: ``relative`` times the distance from ``centre``, plus ``absolute``."""

    relative: float
    absolute: float
    centre: float = 0.0

    def tolerances(self, expected: Array) -> Array:
        tolerance: Array = self.absolute + self.relative * np.abs(expected - self.centre)
        return tolerance


def _margin(dtype: str, job: Job, spread: OutputScale, noise: float) -> _Margin:
    """Return the margin relative to an output's spread, unless the job overrides it."""
    relative, of_spread, of_largest = _tolerances(dtype, job)
    absolute = of_spread * spread.deviation + of_largest * spread.largest + noise
    if job.rtol is None and job.atol is None:
        return _Margin(relative, absolute, spread.mean)
    return _override(_Margin(relative, absolute), job)


def _override(margin: _Margin, job: Job) -> _Margin:
    """Return the margin with the tolerances that the job sets."""
    relative = margin.relative if job.rtol is None else job.rtol
    return _Margin(relative, margin.absolute if job.atol is None else job.atol)


def _compare_floats(
    name: str, found: Array, expected: Array, job: Job, again: Callable[[], Array | None]
) -> tuple[OutputResult, str | None]:
    """Return the verdict, and the reason if it is inconclusive."""
    dtype, spread = found.dtype.name, scale_of(expected)
    # Decides if the output's own spread is only rounding: the margin for a spread of 1.
    margin = _override(_Margin(*_tolerances(dtype, job)[:2]), job)
    plain = _check_margin(name, found, expected, margin)
    blind = why_blind(spread, _rounding(expected, job, spread))
    if blind is not None:
        return plain, blind
    result = _check_margin(name, found, expected, _margin(dtype, job, spread, 0.0))
    if result.passed or not plain.passed:
        return result, None
    noise = _NOISE * _distance(again(), expected)
    blind = why_blind(spread, noise)
    if blind is not None:
        return plain, blind
    return _check_margin(name, found, expected, _margin(dtype, job, spread, noise)), None


def _distance(again: Array | None, expected: Array) -> float:
    """Return the rms difference of two runs on one device, 0 without a second run."""
    if again is None or again.shape != expected.shape:
        return 0.0
    squares = count = 0.0
    for a, b in zip(chunks(again), chunks(expected), strict=True):
        finite = np.isfinite(a) & np.isfinite(b)
        squares += float(np.square(a[finite] - b[finite]).sum())
        count += int(np.count_nonzero(finite))
    return float(np.sqrt(squares / count)) if count else 0.0


def _check_margin(name: str, found: Array, expected: Array, margin: _Margin) -> OutputResult:
    absolute = relative = 0.0
    misplaced = wrong = 0
    for a, b in zip(chunks(found), chunks(expected), strict=True):
        special = ~(np.isfinite(a) & np.isfinite(b))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        misplaced += int(np.count_nonzero(special & ~same))
        a, b = a[~special], b[~special]
        difference = np.abs(a - b)
        wrong += int(np.count_nonzero(difference > margin.tolerances(b)))
        absolute = max(absolute, _largest(difference))
        relative = max(relative, _largest(_ratios(a, b, margin.absolute)))
    note = f"{misplaced} NaN or infinite on one side" if misplaced else ""
    passed = not misplaced and not wrong
    return OutputResult(name, found.dtype.name, found.shape, absolute, relative, passed, note)


def largest_difference(a: Array, b: Array) -> float:
    """Return the largest difference of two arrays of one shape, where both are finite."""
    if a.dtype.hasobject or a.shape != b.shape:
        return 0.0
    largest = 0.0
    for own, other in zip(chunks(a), chunks(b), strict=True):
        finite = np.isfinite(own) & np.isfinite(other)
        largest = max(largest, _largest(np.abs(own - other)[finite]))
    return largest


def _ratios(a: Array, b: Array, floor: float) -> Array:
    judged = np.abs(b) > floor
    ratios: Array = np.abs(a - b)[judged] / np.abs(b)[judged]
    return ratios


def _largest(values: Array) -> Any:
    return float(values.max()) if values.size else 0.0
