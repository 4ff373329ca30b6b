"""Inputs for graphs whose results nobody looks at."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError

__all__ = ["drawn_input"]

# ONNX Runtime's names of element types that are not numpy's.
_NAMES = {"float": "float32", "double": "float64"}


def drawn_input(name: str, kind: str, shape: list[Any], seed: int) -> Array:
    """Return a tensor of ONNX Runtime's type text ``kind``, such as ``tensor(float)``.

    Real numbers lie in [0.5, 1): none is so small that arithmetic slows down. Integers are 0 or 1,
    which are indices into nearly anything. Raises `UserError` for no tensor of static shape.
    """
    element = kind.removeprefix("tensor(").removesuffix(")")
    if not kind.startswith("tensor(") or element == "string":
        raise UserError(f"input '{name}': expected a tensor of numbers, got: {kind}")
    if not all(isinstance(size, int) for size in shape):
        raise UserError(f"input '{name}': expected a static shape, got: {shape}")
    dtype, draw = dtype_of(_NAMES.get(element, element)), np.random.default_rng(seed)
    if dtype.kind in "iub":
        return draw.integers(0, 2, shape).astype(dtype)
    return draw.uniform(0.5, 1.0, shape).astype(dtype)
