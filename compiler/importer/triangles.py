"""Causal masks among the weights: exporters that fold constants store them as tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import numpy_helper

from tensoropt.compiler.importer.storage import StoredTensor
from tensoropt.compiler.shapes.causality import HIDDEN

__all__ = ["triangle_of"]

_MATRIX = 2


def triangle_of(stored: StoredTensor) -> str | None:
    """Return the kind of causal mask that a weight of square matrices is.

    ``hides`` if it is 0 up to the place of the row and hides later keys when it is added to scores,
    ``earlier`` for bools that are true up to that place, ``later`` for bools that are true after
    it; ``None`` for all others. Most weights differ in their first row, and only that is read.
    """
    *lead, rows, keys = (0, 0, *stored.shape)
    if len(stored.shape) < _MATRIX or rows != keys or rows < _MATRIX or stored.is_missing:
        return None
    if stored.element.name not in ("FLOAT", "BOOL"):
        return None
    kind = np.dtype(np.float32 if stored.element.name == "FLOAT" else np.bool_)
    try:
        values = _view(stored, kind).reshape(math.prod(lead[_MATRIX:]), rows, keys)
    except OSError:  # writing the plan will report the error
        return None
    for name, first, last in _NAMED[kind.name]:
        if all(_fits(matrix, first, last) for matrix in values):
            return name
    return None


_NAMED: dict[str, list[tuple[str, float, float]]] = {
    "float32": [("hides", 0.0, HIDDEN)],
    "bool": [("earlier", 1, 0), ("later", 0, 1)],
}
"""Names, with the value up to the place of the row, and the value after it, of floats at most."""


def _fits(matrix: npt.NDArray[Any], first: float, last: float) -> bool:
    """Return whether a matrix has ``first`` up to each row's place and ``last`` after it."""
    is_term = matrix.dtype.kind == "f"
    for place, row in enumerate(matrix):
        seen, later = row[: place + 1], row[place + 1 :]
        if not (seen == first).all():
            return False
        if not ((later <= last) if is_term else (later == last)).all():
            return False
    return True


def _view(stored: StoredTensor, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    if stored.path is None:
        return numpy_helper.to_array(stored.tensor)
    with stored.open() as file:
        return np.memmap(file, kind, "r", stored.offset, stored.shape)
