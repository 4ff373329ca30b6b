"""Costs of reshards from the layouts of a producer to the layouts of a use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.reshard.resharder import Resharder
from tensoropt.compiler.search.problem.shared_uses import (
    LayoutSets,
    making_tables,
    reading_times,
)
from tensoropt.compiler.sharding.rule.op_info import TensorInfo
from tensoropt.compiler.support.identity import Known, Same
from tensoropt.runtime.layout.layout import Layout

__all__ = ["EdgeTables", "is_cut"]

Array = npt.NDArray[np.float64]
Layouts = tuple[Layout, ...]


class EdgeTables:
    """Tables of times and transient bytes, made once and shared by all equal edges.

    Edges are equal if their tensors are and their layouts are the same *objects*. The caller keeps
    one tuple per list of layouts: comparing contents would take longer than all else.
    """

    def __init__(self, resharder: Resharder) -> None:
        self._resharder = resharder
        self._tables: dict[object, tuple[Array, Array]] = {}
        self._reading = Known()

    def table(
        self,
        info: TensorInfo,
        sources: Layouts,
        targets: Layouts,
        *,
        constant: bool,
        fixed: bool = False,
    ) -> tuple[Array, Array]:
        """Return (time_s, transient_bytes) as [source, target]; infinite without a path.

        A ``constant`` is sliced for its use, which is free, and never communicated. A ``fixed``
        tensor, or a tensor that cannot be communicated, keeps its layout.
        """
        fixed = fixed or not info.is_movable
        key = (info.sizes, info.item_bytes, Same(sources), Same(targets), constant, fixed)
        if key not in self._tables:
            make = self._cuts if constant else self._reshards
            time_s, transient = make(info, sources, targets)
            if fixed:
                time_s = _where_same(time_s, sources, targets)
            self._tables[key] = time_s, transient
        return self._tables[key]

    def making(self, info: TensorInfo, sources: Layouts, sets: LayoutSets) -> tuple[Array, Array]:
        """Return (time_s, transient_bytes) as [source, set] of making every layout of a set."""
        key = (info.sizes, info.item_bytes, info.is_movable, Same(sources), Same(sets))
        if key not in self._tables:
            self._tables[key] = making_tables(self._resharder, info, sources, sets)
        return self._tables[key]

    def reading(self, sets: LayoutSets, wanted: Layouts) -> Array:
        """Return seconds as [set, option] of reading one layout of a set."""
        return self._reading.get((sets, wanted), lambda: reading_times(sets, wanted))

    def _reshards(
        self, info: TensorInfo, sources: Layouts, targets: Layouts
    ) -> tuple[Array, Array]:
        (rows, row_of), (columns, column_of) = _distinct(sources), _distinct(targets)
        time_s, transient = self._resharder.table(info.sizes, info.item_bytes, rows, columns)
        picked = np.ix_(row_of, column_of)
        # A tensor may be tied to a tensor of another size, with layouts that do not fit it.
        return time_s[picked], np.where(np.isfinite(transient), transient, 0.0)[picked]

    def _cuts(self, info: TensorInfo, sources: Layouts, targets: Layouts) -> tuple[Array, Array]:
        allowed = [[is_cut(a, b) for b in targets] for a in sources]
        time_s = np.where(np.array(allowed), 0.0, np.inf)
        return time_s, np.zeros_like(time_s)


def _where_same(time_s: Array, sources: Layouts, targets: Layouts) -> Array:
    same = np.array([[source == target for target in targets] for source in sources])
    return np.where(same, time_s, np.inf)


def _distinct(layouts: Sequence[Layout]) -> tuple[list[Layout], list[int]]:
    """Return the distinct layouts, and the position of each layout among them."""
    positions: dict[Layout, int] = {}
    numbers = [positions.setdefault(layout, len(positions)) for layout in layouts]
    return list(positions), numbers


def is_cut(source: Layout, target: Layout) -> bool:
    """Return whether each rank can slice ``target`` from its part in ``source``."""
    changed = [a for a, p in enumerate(source.placements) if p != target.placements[a]]
    if not all(source.placements[a].is_replicate for a in changed):
        return False
    # Axes split a dimension major to minor: no axis can be put before an axis that splits it.
    return not any(
        target.placements[a].is_split and target.placements[a] == source.placements[b]
        for a in changed
        for b in range(a + 1, len(source.placements))
    )
