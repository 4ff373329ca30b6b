"""Inputs for graphs with results that are discarded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError

__all__ = ["drawn_input"]

# ONNX Runtime's names of element types that are not numpy's.
_NAMES = {"float": "float32", "double": "float64"}


def drawn_input(name: str, kind: str, shape: Sequence[int | str | None], seed: int) -> Array:
    """Return a tensor of ONNX Runtime's type text ``kind``, such as ``tensor(float)``.

    Real numbers are drawn from [0.5, 1): denormals would slow arithmetic down. Integers are 0 or 1,
    which are valid indices nearly everywhere. Raises `UserError` unless ``kind`` is a tensor of
    numbers of static shape.
    """
    element = kind.removeprefix("tensor(").removesuffix(")")
    if not kind.startswith("tensor(") or element == "string":
        raise UserError(f"input '{name}': expected a tensor of numbers, got: {kind}")
    sizes = [size for size in shape if isinstance(size, int)]
    if len(sizes) < len(shape):
        raise UserError(f"input '{name}': expected a static shape, got: {shape}")
    dtype, draw = dtype_of(_NAMES.get(element, element)), np.random.default_rng(seed)
    if dtype.kind in "iub":
        return draw.integers(0, 2, sizes).astype(dtype)
    return draw.uniform(0.5, 1.0, sizes).astype(dtype)
