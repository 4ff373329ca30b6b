"""Layouts at random."""

from __future__ import annotations

from hypothesis import strategies as st

from tensoropt.runtime.layout.mesh_layout import parse_layout

__all__ = ["changes", "layouts"]

SIZES = (1, 2, 3, 4, 6, 8, 12)


@st.composite
def layouts(draw, shape):
    """A layout of an array of ``shape`` on some mesh, without partial results."""
    mesh, texts, parts = [], [], [1] * len(shape)
    blocks = [draw(st.sampled_from([1, 1, 2])) for _ in shape]
    for _ in range(draw(st.integers(1, 3))):
        extent = draw(st.sampled_from((1, 2, 3, 4)))
        fits = [d for d, size in enumerate(shape) if size % (blocks[d] * parts[d] * extent) == 0]
        dim = draw(st.sampled_from([None, *fits]))
        if dim is not None:
            parts[dim] *= extent
        mesh.append(extent)
        texts.append("R" if dim is None else f"S({dim} of {blocks[dim]})")
    return parse_layout(texts, mesh)


@st.composite
def changes(draw):
    shape = draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=3))
    return shape, draw(layouts(shape)), draw(layouts(shape))
