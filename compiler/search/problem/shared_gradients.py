"""Shared tensors with summed gradients: one variable for the copy and for the sum.

A tensor with several readers has a copy that all of them read; their gradients have a sum. The sum
is split like the copy, and whole or partial if the copy is whole. A partial sum with several
readers is reduced once, to a layout that is chosen as well. Three variables of their own would
multiply the size of every table at the end of a residual block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.layout.layouts import fits
from tensoropt.compiler.search.problem.cluster_kind import ClusterKind, Column
from tensoropt.compiler.search.problem.problem import NodeTable
from tensoropt.compiler.sharding.rule.op_info import TensorInfo
from tensoropt.runtime.layout.layout import REPLICATE, Layout, split
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["SharedGradient", "shared_gradients"]


@dataclass(frozen=True, eq=False)
class SharedGradient:
    """A cluster that is a sum, with options for the copy too.

    ``copies`` has the layout of the copy per option; ``made``, ``kept``, ``wanted``, ``picks`` and
    ``table`` are as in :class:`ClusterKind`.
    """

    copies: tuple[Layout, ...]
    made: dict[int, tuple[Layout, ...]]
    kept: dict[int, NDArray[np.bool_]]
    wanted: dict[int, list[Column]]
    picks: NDArray[np.int32]
    table: NodeTable


def shared_gradients(
    kind: ClusterKind, info: TensorInfo, copies: Sequence[Layout], *, shared: bool
) -> SharedGradient:
    """Return the options of a sum (a cluster of one node) with a copy in one of ``copies``.

    A ``shared`` sum has several readers. Linear in the product of the layouts of both.
    """
    (place,) = kind.made
    tables, sums = kind.tables, kind.made[place]
    rows = [
        (copy, number, end)
        for copy in copies
        for number, total in enumerate(sums)
        if _agree(copy, total)
        for end in (_ends(total, info, tables.mesh) if shared else (total,))
    ]
    index = np.array([number for _, number, _ in rows], dtype=np.intp)
    ends = tuple(end for _, _, end in rows)
    return SharedGradient(
        tuple(copy for copy, _, _ in rows),
        {place: ends},
        {place: np.zeros(len(rows), dtype=np.bool_)},
        {value: [_take(c, index) for c in columns] for value, columns in kind.wanted.items()},
        kind.picks[index],
        _table(kind, index, info, [sums[n] for n in index], ends),
    )


def _agree(copy: Layout, layout: Layout) -> bool:
    """Return whether a sum fits its copy: an axis that replicates the copy may be partial."""
    pairs = zip(copy.placements, layout.placements, strict=True)
    return all(a == b or (a.is_replicate and b.is_partial) for a, b in pairs)


def _ends(held: Layout, info: TensorInfo, mesh: Mesh) -> Iterator[Layout]:
    """Yield the layouts of a sum for its readers: as computed, whole, or split."""
    yield held
    axes = [axis for axis, own in enumerate(held.placements) if own.is_partial]
    if axes:
        yield held.replace(axes, REPLICATE)
        along = (held.replace(axes, split(dim)) for dim in range(info.rank))
        yield from (layout for layout in along if fits(layout, info.sizes, mesh))


def _take(column: Column, index: NDArray[np.intp]) -> Column:
    layouts = tuple(column.layouts[n] for n in index)
    return replace(column, layouts=layouts, again=column.again[index])


def _table(
    kind: ClusterKind,
    index: NDArray[np.intp],
    info: TensorInfo,
    sources: Sequence[Layout],
    ends: Sequence[Layout],
) -> NodeTable:
    """Return the costs of the sum and of reducing it."""
    table, times = kind.table, kind.graph.micro_batches
    paths = [
        kind.tables.resharder.path(info.sizes, info.item_bytes, source, end)
        for source, end in zip(sources, ends, strict=True)
    ]
    peaks = np.array([path.peak_bytes for path in paths], dtype=np.float64)
    return NodeTable(
        table.time_s[index] + times * np.array([path.time_s for path in paths]),
        table.static_bytes[index],
        np.maximum(table.transient_bytes[index], peaks),
    )
