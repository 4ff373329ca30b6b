"""Splitting of a global array into the parts of all ranks, and recombination of parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.layout.mesh_layout import COMBINERS

__all__ = ["combine", "cut"]

Array = npt.NDArray[Any]


def cut(array: Array, layout: Layout, mesh: Mesh, rng: np.random.Generator) -> list[Array]:
    """Return the part of every rank; partial layouts get random parts that reduce to ``array``.

    Padding, which may contain anything, is filled with the most harmful value: NaN, or the largest
    integer.
    """
    axes = _partial_axes(layout)
    wholes: dict[tuple[int, ...], Array] = {(): array}
    for axis in axes:
        kind = layout.placements[axis].reduction
        wholes = {
            (*position, i): part
            for position, whole in wholes.items()
            for i, part in enumerate(_partials(whole, mesh.shape[axis], str(kind), rng))
        }
    local = [int(n or 0) for n in layout.local_shape(array.shape, mesh)]
    cache: dict[tuple[Any, ...], Array] = {}  # ranks with equal parts share one array
    parts = []
    for rank in range(mesh.size):
        position = tuple(mesh.coordinates(rank)[axis] for axis in axes)
        boxes = layout.local_boxes(array.shape, mesh, rank)
        starts = tuple(own.start for box in boxes for own in box.whole)
        if (position, starts) not in cache:
            own = _harmful(local, array.dtype)
            for box in boxes:
                own[box.part] = wholes[position][box.whole]
            cache[position, starts] = own
        parts.append(cache[position, starts])
    return parts


def _harmful(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Return the most harmful padding of a part of ``shape``."""
    if dtype.hasobject:  # strings
        return np.empty(shape, dtype)
    kind = dtype.kind
    harm = True if kind == "b" else np.iinfo(dtype).max if kind in "iu" else np.nan
    return np.full(shape, harm, dtype)


def _partial_axes(layout: Layout) -> list[int]:
    axes = [axis for axis, p in enumerate(layout.placements) if p.is_partial]
    assert not layout.is_mixed, f"{layout} mixes reductions, which a layout does not order"
    return axes


def _partials(whole: Array, count: int, kind: str, rng: np.random.Generator) -> list[Array]:
    if kind == "sum":
        assert whole.dtype.kind in "iufc", f"{whole.dtype} has no sum"
        parts = [_noise(whole, rng) for _ in range(count - 1)]
        last = reduce(np.subtract, parts, whole).astype(whole.dtype)
        return [*parts, last]
    # One part has the value of an element; the values of the others lose against it.
    if whole.dtype.kind == "b":
        losing = np.full(whole.shape, kind == "min")
    else:
        losing = COMBINERS["min" if kind == "max" else "max"](whole, _noise(whole, rng))
    holder = rng.integers(count, size=whole.shape)
    return [np.where(holder == i, whole, losing).astype(whole.dtype) for i in range(count)]


def _noise(whole: Array, rng: np.random.Generator) -> Array:
    if whole.dtype.kind in "iu":
        return rng.integers(0, 7, size=whole.shape).astype(whole.dtype)
    return rng.standard_normal(whole.shape).astype(whole.dtype)


def combine(parts: Sequence[Array], layout: Layout, mesh: Mesh, shape: tuple[int, ...]) -> Array:
    """Return the global array of ``shape`` from ``parts``, without their padding.

    Raises AssertionError unless replicas agree to the last bit.
    """
    result = np.empty(shape, parts[0].dtype)
    axes, copied = _partial_axes(layout), list[tuple[Any, Array]]()
    for rank in range(mesh.size):
        group = mesh.group(rank, tuple(axes))
        kind = layout.placements[axes[0]].reduction if axes else "sum"
        for box in layout.local_boxes(shape, mesh, rank):
            own = (parts[other][box.part] for other in group)
            result[box.whole] = value = reduce(COMBINERS[str(kind)], own)
            copied.append((box.whole, value))
    replicated = tuple(axis for axis, p in enumerate(layout.placements) if p.is_replicate)
    for rank, part in enumerate(parts):
        first = mesh.group(rank, replicated)[0]
        if part is not parts[first]:
            np.testing.assert_array_equal(
                parts[first], part, f"ranks {first} and {rank} differ under {layout}"
            )
    for whole, value in copied:
        np.testing.assert_array_equal(result[whole], value, f"copies differ under {layout}")
    return result
