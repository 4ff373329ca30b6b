"""Lower bound on a tensor's live bytes while it is sliced for its last reader.

Programs make a smaller layout of a tensor once nothing else reads it
(``passes/early_reshards.py``); then both are live. The last reader's layout may also exist earlier,
or be made later from a third live layout, which takes no longer. The bound is the least of these
cases, for every producer and all other readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from tensoropt.compiler.layout.layouts import fits
from tensoropt.compiler.layout.mesh import grouped
from tensoropt.compiler.program.costs import tensor_bytes
from tensoropt.compiler.reshard.resharder import Resharder
from tensoropt.compiler.search.problem.problem import ROUNDING, Floats
from tensoropt.compiler.sharding.rule.op_info import TensorInfo
from tensoropt.runtime.layout.layout import REPLICATE, Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["left_bytes"]

MOST_LAYOUTS = 100
"""Largest number of layouts of a tensor for which the bound is computed."""


def left_bytes(
    info: TensorInfo,
    read: Sequence[Layout],
    last: Sequence[Layout],
    layouts: Iterable[Layout],
    resharder: Resharder,
) -> Floats:
    """Return bytes [option of the last reader, option of the reader before]; 0 without a slice.

    ``last`` and ``read`` are the layouts that these two readers require. ``layouts`` are all
    layouts in which the tensor is made or read. O(n^3) for n layouts, in arrays.
    """
    every = _with_mixed(layouts, info, resharder.mesh)
    if len(every) > MOST_LAYOUTS:
        return np.zeros((len(last), len(read)))
    sizes = np.array([tensor_bytes(info, x, resharder.mesh) for x in every], dtype=np.float64)
    times, _ = resharder.table(info.sizes, info.item_bytes, every, every)
    own = np.eye(len(every), dtype=np.bool_)
    # True if a third layout may replace the read layout as the source of the wanted layout, or is
    # the wanted layout itself: [read, third, wanted].
    may_be = (times <= times[:, None] * (1 + ROUNDING)) & ~own[:, :, None] | own
    waits = np.where(may_be, sizes[:, None], np.inf).min(axis=1)
    is_cut = (sizes < sizes[:, None]) & np.isfinite(times)
    found = np.where(is_cut, sizes[:, None] + waits, 0.0)
    place = {layout: number for number, layout in enumerate(every)}
    return found[np.ix_([place[x] for x in read], [place[x] for x in last])].T


def _with_mixed(layouts: Iterable[Layout], info: TensorInfo, mesh: Mesh) -> list[Layout]:
    """Return the distinct layouts, and mixtures of their placements per axis.

    The mixtures are at most ``MOST_LAYOUTS + 1``; each axis may also be replicated.
    """
    found = dict.fromkeys(layouts)
    axes = zip(*(layout.placements for layout in found), strict=True)
    mixed = [[*dict.fromkeys((REPLICATE, *(p for p in own if not p.is_partial)))] for own in axes]
    every = map(Layout, islice(grouped(mesh, mixed), MOST_LAYOUTS + 1))
    return [*found, *(x for x in every if x not in found and fits(x, info.sizes, mesh))]
