"""Judging a run's output against the one-device run's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tensoropt.runtime.dtypes import STRING, Array, name_of
from tensoropt.runtime.job import Job, OutputResult

__all__ = ["compare", "describe"]

# Relative and absolute: some thousand roundings of the type, as a sum in another order makes them.
_TOLERANCES = {
    "float64": (1e-3, 1e-4),
    "float32": (1e-3, 1e-4),
    "float16": (1e-2, 1e-2),
    "bfloat16": (5e-2, 5e-2),
}
# On CUDA products of float32 are TF32's, which rounds operands to float16's 10 bits.
_AS_ON_CUDA = {"float32": "float16"}
_COARSE = (2e-1, 2e-1)  # the float8 types

# Of a model that rounds to 8 bits on the way: a sum in another order, or in integers, may round to
# the next step, which later layers spread. Runs of ONNX Runtime itself differ so, fused or not.
_STEPS, _ALL_STEPS = 4, 255

_CHUNK = 1 << 20  # elements compared at a time, which bounds the float64 copies


def describe(name: str, array: Array) -> OutputResult:
    """Return an output's facts, without a verdict."""
    return OutputResult(name, name_of(array.dtype), array.shape)


def compare(
    name: str, found: Array, expected: Array, job: Job, is_quantised: bool = False
) -> OutputResult:
    """Compare one output with the one-device run's.

    It passes where |found - expected| <= atol + rtol |expected| for every element; tolerances that
    the job leaves open are those of the type, of float32 on CUDA float16's. All else must be equal;
    a NaN or an infinity only passes against the same. Where the model ``is_quantised``, 4 of 255
    steps of the largest value are let pass, 4 steps of 8-bit integers, and said in the note.
    """
    if found.dtype != expected.dtype or found.shape != expected.shape:
        note = f"expected {name_of(expected.dtype)} {_text(expected.shape)}"
        return OutputResult(name, name_of(found.dtype), found.shape, passed=False, note=note)
    if found.dtype.hasobject:
        return _compare_strings(name, found, expected)
    if found.dtype.kind not in "fV":
        result = _compare_exact(name, found, expected)
    else:
        result = _compare_floats(name, found, expected, job)
    if is_quantised and not result.passed and job.atol is None:
        return _within_steps(result, expected)
    return result


def _within_steps(result: OutputResult, expected: Array) -> OutputResult:
    """Return the result as passed where it is wrong by steps of 8 bits only."""
    whole = expected.dtype.kind in "iu" and expected.dtype.itemsize == 1
    is_float = expected.dtype.kind in "fV"
    if result.absolute is None or "NaN" in result.note or not (whole or is_float):
        return result
    step = 1.0 if whole else _largest(np.abs(expected.astype(np.float64))) / _ALL_STEPS
    if result.absolute > _STEPS * step:
        return result
    return replace(result, passed=True, note=f"within {_STEPS} steps of 8 bits")


def _tolerances(dtype: str, job: Job) -> tuple[float, float]:
    if job.provider == "cuda":
        dtype = _AS_ON_CUDA.get(dtype, dtype)
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


def _compare_strings(name: str, found: Array, expected: Array) -> OutputResult:
    different = int(np.count_nonzero(found != expected))
    note = f"{different} of {found.size} differ" if different else ""
    return OutputResult(name, STRING, found.shape, passed=different == 0, note=note)


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
