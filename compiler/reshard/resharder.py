"""The cheapest reshard between two layouts: a shortest path over the steps on a mesh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tensoropt.compiler.cost.communication import copy_line
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.sizes import Size, Sizes, divisor_of, end_of, mean_of
from tensoropt.compiler.reshard.shortest import Floats
from tensoropt.compiler.reshard.step_graph import Cuts, StepGraph, TensorPaths
from tensoropt.compiler.reshard.steps import Move, ReshardStep, moves_of
from tensoropt.runtime.layout.division import Division
from tensoropt.runtime.layout.layout import REDUCTIONS, REPLICATE, Layout, Placement, Reduction
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.layout.padding import can_pad, part_of

__all__ = ["Path", "Resharder", "TimedMove"]

_SUM: tuple[Reduction, ...] = ("sum",)

# Number of tensor sizes with cached paths; a model has a few dozen distinct sizes.
_CACHED_SIZES = 256


@dataclass(frozen=True)
class Path:
    """The steps from one layout to another in order, their total time, and their peak memory.

    ``peak_bytes`` is the largest sum of a step's input and output on one rank; 0 for an empty path.
    """

    steps: tuple[ReshardStep, ...]
    time_s: float
    peak_bytes: int


@dataclass(frozen=True)
class TimedMove:
    """One operation of a rank on a path, with its step, its time and the sizes of its input.

    For a pad or a crop, ``read`` has the sizes of the larger of its input and output.
    """

    move: Move
    step: ReshardStep
    time_s: float
    read: Sizes


class Resharder:
    """Finds the fastest reshards on one mesh of one kind of device.

    Symbolic dimensions count as 1 and are never split. Dimensions with a range (:class:`Open`)
    count as its mean in times and as its end in bytes, and are split if that divides all their
    sizes. Mesh axes of extent 1 are ignored: layouts that differ only there are the same, and steps
    never name these axes. A dimension may be padded a little: a step then pads before it slices,
    and crops after it joins. A step cuts or joins padded parts only if they nest. A dimension in
    blocks is reordered around steps that cut or join it; only the blocks and units of the ends of a
    path occur on it. No path leads from or to a layout that does not fit the shape
    (:func:`describe_misfit`) or that mixes reductions.
    """

    def __init__(self, mesh: Mesh, device: Device) -> None:
        self.mesh, self.device = mesh, device
        self._unit_axes = tuple(axis for axis in mesh.axes if mesh.shape[axis] == 1)
        self._pieces = {1}
        for extent in mesh.shape:
            self._pieces |= {pieces * extent for pieces in self._pieces}
        self._graph = lru_cache(maxsize=None)(self._build)
        self._paths = lru_cache(maxsize=_CACHED_SIZES)(self._solve)

    def path(self, shape: Sequence[Size], item_bytes: int, src: Layout, dst: Layout) -> Path:
        """Return the fastest path from ``src`` to ``dst``; ties are broken deterministically.

        Raises ``ValueError`` if a tensor of ``shape`` cannot have one of the layouts.
        """
        paths = self._paths_for(shape, item_bytes, [src, dst])
        start, end = (self._node(paths, layout, shape) for layout in (src, dst))
        time_s, peak_bytes = paths.shortest.rows([start])
        edges = paths.shortest.trace(start, end)
        steps = tuple(paths.steps[edge] for edge in edges)
        peak = float(peak_bytes[0, end]) * _growth(shape)
        return Path(steps, float(time_s[0, end]), round(peak))

    def moves(self, shape: Sequence[Size], item_bytes: int, path: Path) -> list[TimedMove]:
        """Return the operations of a rank on ``path`` in order; their times add up to its time."""
        found, left_s = list[TimedMove](), path.time_s
        for step in path.steps:
            # Part of a shortest path is a shortest path; the last step takes the remaining time.
            is_last = step is path.steps[-1]
            time_s = left_s if is_last else self.path(shape, item_bytes, step.src, step.dst).time_s
            left_s -= time_s
            found += self._timed(step, shape, item_bytes, time_s)
        return found

    def _timed(
        self, step: ReshardStep, shape: Sequence[Size], item_bytes: int, step_s: float
    ) -> list[TimedMove]:
        moves, copy = moves_of(step, shape, self.mesh), copy_line(2, self.device)
        sizes = [step.src.local_shape(shape, self.mesh), *(move.made for move in moves)]
        copied = {
            place: max(sizes[place : place + 2], key=mean_of)
            for place, move in enumerate(moves)
            if move.kind != step.kind
        }
        times_s = {place: copy.time_s(mean_of(own) * item_bytes) for place, own in copied.items()}
        own_s = step_s - sum(times_s.values())
        return [
            TimedMove(move, step, times_s.get(place, own_s), copied.get(place, sizes[place]))
            for place, move in enumerate(moves)
        ]

    def table(
        self,
        shape: Sequence[Size],
        item_bytes: int,
        srcs: Sequence[Layout],
        dsts: Sequence[Layout],
    ) -> tuple[Floats, Floats]:
        """Return (time_s, transient_bytes) of every path, as [src, dst]; infinite without a path.

        The entries are exactly ``time_s`` and ``peak_bytes`` of :meth:`path`.
        """
        paths = self._paths_for(shape, item_bytes, [*srcs, *dsts])
        rows, starts = _present(paths, [self._plain(layout) for layout in srcs])
        columns, ends = _present(paths, [self._plain(layout) for layout in dsts])
        tables = np.full((2, len(srcs), len(dsts)), np.inf)
        if rows and columns:
            found = paths.shortest.rows(starts)
            for table, values in zip(tables, found, strict=True):
                table[np.ix_(rows, columns)] = values[:, ends]
        growth = _growth(shape)
        return tables[0], tables[1] if growth == 1 else np.rint(tables[1] * growth)

    def _paths_for(
        self, shape: Sequence[Size], item_bytes: int, layouts: Sequence[Layout]
    ) -> TensorPaths:
        """Return the shortest paths for a tensor.

        Partial maxima and minima are rare and no path passes through them, so they are left out if
        none of ``layouts`` has one.
        """
        others = _splits_of(layouts)
        cuts = tuple(self._cuts_of(n, others.get(dim, ())) for dim, n in enumerate(shape))
        total_bytes = mean_of(shape) * item_bytes
        used = {p.reduction for layout in layouts for p in layout.placements if p.is_partial}
        return self._paths(cuts, total_bytes, _SUM if used <= {"sum"} else REDUCTIONS)

    def _cuts_of(self, size: Size, others: Sequence[Placement]) -> Cuts:
        """Return the numbers of pieces that a dimension can be split into, and in ``others``."""
        divisor = math.gcd(divisor_of(size), self.mesh.size)
        if not isinstance(size, int):
            return Cuts(divisor, others=tuple((own, Cuts(1)) for own in others))
        every = tuple((own, self._cuts_by(size, own)) for own in others)
        return Cuts(divisor, self._padded(size), every)

    def _cuts_by(self, size: int, other: Placement) -> Cuts:
        """Return the numbers of pieces that a dimension of ``size`` can be split into."""
        if other.units and other.blocks:
            ways = (Division(size, n, other.blocks, other.units) for n in sorted(self._pieces))
            fitting = (own for own in ways if own.fits and own.pieces > 1)
            return Cuts(1, tuple((own.pieces, own.part * own.pieces / size) for own in fitting))
        units = sum(other.units)  # of one block
        each, rest = divmod(size, units or sum(other.blocks))
        if rest:
            return Cuts(1)
        if units:
            return Cuts(math.gcd(units, self.mesh.size), self._padded(units))
        return Cuts(math.gcd(each, self.mesh.size))

    def _padded(self, points: int) -> tuple[tuple[int, float], ...]:
        """Return the numbers of pieces with some padding, and the ratio of padded size to size."""
        pieces = (n for n in sorted(self._pieces) if points % n and can_pad(points, n))
        return tuple((n, n * part_of(points, n) / points) for n in pieces)

    def _solve(
        self, cuts: tuple[Cuts, ...], total_bytes: int, reductions: tuple[Reduction, ...]
    ) -> TensorPaths:
        others = ((dim, tuple(split for split, _ in own.others)) for dim, own in enumerate(cuts))
        splits = tuple((dim, own) for dim, own in others if own)
        return self._graph(len(cuts), reductions, splits).paths(cuts, total_bytes)

    def _build(
        self,
        rank: int,
        reductions: tuple[Reduction, ...],
        splits: tuple[tuple[int, tuple[Placement, ...]], ...],
    ) -> StepGraph:
        return StepGraph(rank, self.mesh, self.device, reductions, dict(splits))

    def _plain(self, layout: Layout) -> Layout:
        return layout.replace(self._unit_axes, REPLICATE) if self._unit_axes else layout

    def _node(self, paths: TensorPaths, layout: Layout, shape: Sequence[Size]) -> int:
        node = paths.node(self._plain(layout))
        if node is None:
            raise ValueError(f"a tensor of shape {tuple(shape)} cannot have layout {layout}")
        return node


def _splits_of(layouts: Sequence[Layout]) -> dict[int, tuple[Placement, ...]]:
    """Return the splits of each dimension in blocks or between units in any of ``layouts``."""
    found: dict[int, set[Placement]] = {}
    for layout in layouts:
        for own in layout.placements:
            if own.blocks or own.units:
                found.setdefault(own.dim, set()).add(own)
    return {
        dim: tuple(sorted(own, key=lambda split: (split.blocks, split.units)))
        for dim, own in found.items()
    }


def _growth(shape: Sequence[Size]) -> float:
    """Return the ratio of a tensor's size at the end of all ranges to its size at their means."""
    return end_of(shape) / (mean_of(shape) or 1)


def _present(paths: TensorPaths, layouts: Sequence[Layout]) -> tuple[list[int], list[int]]:
    """Return the positions of the layouts that the tensor can have, and their nodes."""
    nodes = [paths.node(layout) for layout in layouts]
    fitting = [(position, node) for position, node in enumerate(nodes) if node is not None]
    return [position for position, _ in fitting], [node for _, node in fitting]
