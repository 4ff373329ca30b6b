"""Judging a run's output against the one-device run's."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensoropt.runtime.dtypes import Array
from tensoropt.runtime.job import Job, OutputResult

__all__ = ["compare", "describe"]

# Relative and absolute: some thousand roundings of the type, as a sum in another order makes them.
_TOLERANCES = {
    "float64": (1e-3, 1e-4),
    "float32": (1e-3, 1e-4),
    "float16": (1e-2, 1e-2),
    "bfloat16": (5e-2, 5e-2),
}
_COARSE = (2e-1, 2e-1)  # the float8 types

_CHUNK = 1 << 20  # elements compared at a time, which bounds the float64 copies


def describe(name: str, array: Array) -> OutputResult:
    """Return an output's facts, without a verdict."""
    return OutputResult(name, array.dtype.name, array.shape)


def compare(name: str, found: Array, expected: Array, job: Job) -> OutputResult:
    """Compare one output with the one-device run's.

    It passes where |found - expected| <= atol + rtol |expected| for every element; tolerances that
    the job leaves open are those of the type. Integers and booleans must be equal; a NaN or an
    infinity only passes against the same.
    """
    if found.dtype != expected.dtype or found.shape != expected.shape:
        note = f"expected {expected.dtype} {_text(expected.shape)}"
        return OutputResult(name, found.dtype.name, found.shape, passed=False, note=note)
    if found.dtype.kind not in "fV":
        return _compare_exact(name, found, expected)
    return _compare_floats(name, found, expected, job)


def _tolerances(dtype: str, job: Job) -> tuple[float, float]:
    rtol, atol = _TOLERANCES.get(dtype, _COARSE)
    return rtol if job.rtol is None else job.rtol, atol if job.atol is None else job.atol


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _compare_exact(name: str, found: Array, expected: Array) -> OutputResult:
    different = int(np.count_nonzero(found != expected))
    largest = _largest(np.abs(found.astype(np.float64) - expected.astype(np.float64)))
    note = f"{different} of {found.size} differ" if different else ""
    relative = _largest(_ratios(found.astype(np.float64), expected.astype(np.float64), 0.0))
    return OutputResult(
        name, found.dtype.name, found.shape, largest, relative, different == 0, note
    )


def _compare_floats(name: str, found: Array, expected: Array, job: Job) -> OutputResult:
    rtol, atol = _tolerances(found.dtype.name, job)
    absolute = relative = 0.0
    misplaced = wrong = 0
    flat, wanted = found.reshape(-1), expected.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        a = flat[start : start + _CHUNK].astype(np.float64)
        b = wanted[start : start + _CHUNK].astype(np.float64)
        special = ~(np.isfinite(a) & np.isfinite(b))
        misplaced += int(np.count_nonzero(special & ~_same(a, b)))
        a, b = a[~special], b[~special]
        difference = np.abs(a - b)
        wrong += int(np.count_nonzero(difference > atol + rtol * np.abs(b)))
        absolute = max(absolute, _largest(difference))
        relative = max(relative, _largest(_ratios(a, b, atol)))
    note = f"{misplaced} NaN or infinite on one side" if misplaced else ""
    passed = not misplaced and not wrong
    return OutputResult(name, found.dtype.name, found.shape, absolute, relative, passed, note)


def _same(a: Array, b: Array) -> Array:
    same: Array = (a == b) | (np.isnan(a) & np.isnan(b))
    return same


def _ratios(a: Array, b: Array, floor: float) -> Array:
    judged = np.abs(b) > floor
    ratios: Array = np.abs(a - b)[judged] / np.abs(b)[judged]
    return ratios


def _largest(values: Array) -> Any:
    return float(values.max()) if values.size else 0.0
