"""Run reshard steps on the parts of all ranks, in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from tensoropt.compiler.reshard.steps import ReshardStep, SplitsOfDims
from tensoropt.compiler.sharding.proof.parts import Array
from tensoropt.runtime.layout.layout import Layout, Placement, split
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.layout.mesh_layout import COMBINERS

__all__ = ["run_step", "splits"]

Group = list[Array]


def splits(*texts: str) -> SplitsOfDims:
    """Return the splits in blocks and between units, given as text, by dimension."""
    every = list(map(Placement.parse, texts))
    return {own.dim: [other for other in every if other.dim == own.dim] for own in every}


def run_step(
    step: ReshardStep, parts: Sequence[Array], shape: Sequence[int], mesh: Mesh
) -> list[Array]:
    """Return every rank's part of a tensor of ``shape`` after ``step``.

    A dimension in blocks is reordered before it is cut and after it is joined. This adds the
    padding and the copies of blocks in units, or leaves them out.
    """
    if step.kind == "all_slice" and step.dst.placements[step.axes[0]].blocks:
        parts = [_by_piece(part, step.dst, step.dim, step, mesh) for part in parts]
    if step.arranged_dim is not None:
        parts = [_by_piece(part, step.dst, step.arranged_dim, step, mesh) for part in parts]
    made = _run(step, parts, mesh)
    if step.restored_dim is None:
        return made
    dim = step.restored_dim
    return [_by_block(part, step.src, dim, step, mesh, shape[dim]) for part in made]


def _runs(size: int, layout: Layout, dim: int, pieces: int) -> list[tuple[slice, int]]:
    """Return the run of each piece in each block in units, and its size with padding."""
    placement = layout.split_of(dim)
    assert placement is not None
    alone, mesh = Layout((split(0, placement.blocks, placement.units),)), Mesh((pieces,))
    shares, total = [], sum(placement.blocks)
    for block, units in zip(placement.blocks, placement.units, strict=True):
        shares.append(size // total * block // units * max(1, -(-units // pieces)))
    return [
        (box.whole[0], share)
        for rank in range(pieces)
        for box, share in zip(alone.local_boxes((size,), mesh, rank), shares, strict=True)
    ]


def _padded(part: Array, dim: int, run: slice, share: int) -> Array:
    own = part[(slice(None),) * dim + (run,)]
    behind = [(0, share - n if d == dim else 0) for d, n in enumerate(own.shape)]
    return np.pad(own, behind, constant_values=55)


def _without_padding(part: Array, layout: Layout, dim: int, pieces: int, size: int) -> Array:
    """Return the elements of each index of ``dim`` in joined pieces of blocks in units."""
    made, at = np.zeros([size if d == dim else n for d, n in enumerate(part.shape)], part.dtype), 0
    before = (slice(None),) * dim
    for run, share in _runs(size, layout, dim, pieces):
        made[(*before, run)] = part[(*before, slice(at, at + run.stop - run.start))]
        at += share
    return made


def _by_piece(part: Array, layout: Layout, dim: int | None, step: ReshardStep, mesh: Mesh) -> Array:
    """Return ``part`` with the pieces of each block of ``dim`` joined by piece."""
    assert dim is not None
    blocks, pieces = layout.blocks(dim), mesh.extent(step.axes)
    if layout.units(dim):
        runs = _runs(part.shape[dim], layout, dim, pieces)
        return np.concatenate([_padded(part, dim, *own) for own in runs], axis=dim)
    ends = np.cumsum(blocks)[:-1] * (part.shape[dim] // sum(blocks))
    cut = [np.split(block, pieces, axis=dim) for block in np.split(part, ends, axis=dim)]
    return np.concatenate([p for own in zip(*cut, strict=True) for p in own], axis=dim)


def _by_block(
    part: Array, layout: Layout, dim: int, step: ReshardStep, mesh: Mesh, size: int
) -> Array:
    """Return ``part`` with the blocks of each piece of ``dim`` joined by block."""
    blocks, pieces = layout.blocks(dim), mesh.extent(step.axes)
    if layout.units(dim):
        return _without_padding(part, layout, dim, pieces, size)
    ends = np.cumsum(blocks)[:-1] * (part.shape[dim] // pieces // sum(blocks))
    cut = [np.split(piece, ends, axis=dim) for piece in np.split(part, pieces, axis=dim)]
    return np.concatenate([p for own in zip(*cut, strict=True) for p in own], axis=dim)


def _run(step: ReshardStep, parts: Sequence[Array], mesh: Mesh) -> list[Array]:
    if step.kind == "collective_permute":
        sources = step.sources(mesh)
        places = [mesh.linear(rank, step.axes) for rank in range(mesh.size)]
        return [
            parts[mesh.group(rank, step.axes)[sources[place]]] for rank, place in enumerate(places)
        ]
    after = []
    for rank in range(mesh.size):
        group = [parts[other] for other in mesh.group(rank, step.axes)]
        after.append(_KINDS[step.kind](step, group, mesh.linear(rank, step.axes)))
    return after


def _piece(array: Array, position: int, count: int, dim: int | None) -> Array:
    assert dim is not None
    return np.split(array, count, axis=dim)[position]


def _all_gather(step: ReshardStep, group: Group, own: int) -> Array:
    assert step.dim is not None
    return np.concatenate(group, axis=step.dim)


def _all_reduce(step: ReshardStep, group: Group, own: int) -> Array:
    return reduce(COMBINERS[str(step.reduction)], group)


def _reduce_scatter(step: ReshardStep, group: Group, own: int) -> Array:
    return _piece(_all_reduce(step, group, own), own, len(group), step.dim)


def _all_to_all(step: ReshardStep, group: Group, own: int) -> Array:
    assert step.dim is not None
    pieces = [_piece(part, own, len(group), step.other_dim) for part in group]
    return np.concatenate(pieces, axis=step.dim)


def _all_slice(step: ReshardStep, group: Group, own: int) -> Array:
    return _piece(group[own], own, len(group), step.dim)


def _partialize(step: ReshardStep, group: Group, own: int) -> Array:
    if step.reduction == "sum" and own > 0:
        return np.zeros_like(group[own])
    return group[own]


_KINDS: dict[str, Callable[[ReshardStep, Group, int], Array]] = {
    "all_gather": _all_gather,
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "all_slice": _all_slice,
    "partialize": _partialize,
}
