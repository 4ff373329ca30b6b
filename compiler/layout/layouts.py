"""Layouts that the compiler gives a tensor: their fit to its shape, and their orders of axes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import reduce

from tensoropt.compiler.layout.mesh import is_deep, is_grouped, most_groups
from tensoropt.compiler.layout.sizes import Open, Size, divisor_of
from tensoropt.runtime.layout.layout import (
    REPLICATE,
    SAME_SPLITS,
    Layout,
    blocks_text,
    split,
    units_text,
)
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["describe_misfit", "fits", "reordered", "sliced"]


def fits(layout: Layout, shape: Sequence[Size], mesh: Mesh) -> bool:
    """Return whether every split dimension exists and can be split at every possible size."""
    return describe_misfit(layout, shape, mesh) is None


def sliced(layout: Layout, shape: Sequence[Size], mesh: Mesh) -> Layout:
    """Return the layout in which ranks with equal parts have equal slices of them instead.

    It is ``layout`` itself if no dimension divides by their number.
    """
    axes = tuple(axis for axis in layout.axes_of(REPLICATE) if mesh.shape[axis] > 1)
    pieces = mesh.extent(axes)
    for dim, size in enumerate(shape):
        if isinstance(size, int) and size % pieces == 0 and not layout.axes_splitting(dim):
            own = (split(dim) if n in axes else one for n, one in enumerate(layout.placements))
            found = Layout(tuple(own), layout.turned)
            if axes and fits(found, shape, mesh):
                return found
    return layout


def describe_misfit(layout: Layout, shape: Sequence[Size], mesh: Mesh) -> str | None:
    """Return the reason why a tensor of ``shape`` cannot have ``layout``, or ``None``.

    The text has the form ``expected X, got: Y``.
    """
    if not is_grouped(mesh, layout.placements):
        most = f"at most {most_groups(mesh)} groups of neighbouring mesh axes that differ"
        return f"expected {most}, got: {layout}"
    if layout.turned and is_deep(mesh):
        return f"expected axes in the order of the mesh, which is deep, got: {layout}"
    if layout.mixes_splits:
        return f"expected {SAME_SPLITS} on all axes that split one dimension, got: {layout}"
    for dim in sorted({p.dim for p in layout.placements if p.is_split}):
        if dim >= len(shape):
            return f"expected a dimension below {len(shape)}, got: S({dim})"
        misfit = _describe_split(layout, dim, shape[dim], mesh)
        if misfit is not None:
            return misfit
    return None


def _describe_split(layout: Layout, dim: int, size: Size, mesh: Mesh) -> str | None:
    """Return the reason why a dimension of ``size`` cannot be split as in ``layout``."""
    pieces, blocks, units = layout.pieces(dim, mesh), layout.blocks(dim), layout.units(dim)
    if size is None:
        return f"expected dimension {dim} whole or fixed by --dim, got: a symbolic size"
    if isinstance(size, Open):
        if blocks or units:
            return f"expected dimension {dim} whole or without blocks and units, got: {size}"
        if divisor_of(size) % pieces:
            return f"expected dimension {dim} whole or of multiples of {pieces}, got: {size}"
    elif not layout.can_split(dim, size, mesh):
        each = f" in blocks of {blocks_text(blocks)}" if blocks else ""
        each += f" in {units_text(units)} units" if units else ""
        return f"expected dimension {dim} to divide by {pieces}{each}, got: {size}"
    return None


def reordered(layout: Layout, mesh: Mesh) -> Iterator[Layout]:
    """Yield the layouts that differ from ``layout`` only in the order of axes.

    Yields none on a deep mesh, where axes form groups of neighbours anyway.
    """
    if is_deep(mesh):
        return
    dims = sorted({own.dim for own in layout.placements if own.is_split})
    orders = (itertools.permutations(layout.axes_splitting(dim)) for dim in dims)
    for chosen in itertools.product(*orders):
        found = reduce(Layout.ordered, chosen, layout)
        if found != layout:
            yield found
