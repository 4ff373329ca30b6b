"""Layouts at random."""

from __future__ import annotations

from hypothesis import strategies as st

from tensoropt.runtime.layout.division import Division
from tensoropt.runtime.layout.layout import Placement
from tensoropt.runtime.layout.mesh_layout import parse_layout

__all__ = ["changes", "layouts"]

SIZES = (1, 2, 3, 4, 6, 8, 12)


@st.composite
def layouts(draw, shape):
    """A layout of an array of ``shape`` on some mesh, without partial results."""
    mesh, texts, parts = [], [], [1] * len(shape)
    every = ["of 1", "of 2", "in 3", "in 4", "of 2 in 3", "of 4+1+1 in 4+1+1"]
    ways = [draw(st.sampled_from(every)) for _ in shape]
    for _ in range(draw(st.integers(1, 3))):
        extent = draw(st.sampled_from((1, 2, 3, 4)))
        sizes = enumerate(shape)
        fits = [d for d, size in sizes if _fits(ways[d], size, parts[d] * extent)]
        dim = draw(st.sampled_from([None, *fits]))
        if dim is not None:
            parts[dim] *= extent
        mesh.append(extent)
        texts.append("R" if dim is None else f"S({dim} {ways[dim]})")
    return parse_layout(texts, mesh).for_shape(shape)


def _fits(way, size, pieces):
    """Say whether a dimension of ``size`` in blocks or units has that many parts."""
    placement = Placement.parse(f"S(0 {way})")
    if placement.units or placement.blocks:
        return Division(size, pieces, placement.blocks, placement.units).fits
    return size % pieces == 0


@st.composite
def changes(draw):
    shape = draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=3))
    return shape, draw(layouts(shape)), draw(layouts(shape))
