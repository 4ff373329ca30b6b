"""The graph of layouts and steps for tensors of one rank, with the cost of each step."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.cost.communication import Curve, collective_curve, copy_line
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.reshard.shortest import Edges, Floats, ShortestPaths
from tensoropt.compiler.reshard.steps import (
    ReshardStep,
    SplitsOfDims,
    layouts_of_rank,
    permutes,
    steps_from,
)
from tensoropt.runtime.layout.layout import Layout, Placement, Reduction, split
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["Cuts", "StepGraph", "TensorPaths"]

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cuts:
    """The numbers of pieces that a dimension can be split into.

    They are the divisors of ``divisor``, which is 1 if the dimension cannot be split. ``padded``
    adds numbers that leave padding or copies, each with the ratio of the padded size to the size.
    ``others`` has the cuts for each of the dimension's splits in blocks and between units.
    """

    divisor: int
    padded: tuple[tuple[int, float], ...] = ()
    others: tuple[tuple[Placement, Cuts], ...] = ()


@dataclass(frozen=True)
class TensorPaths:
    """Shortest paths between the layouts that fit one shape, at one size in bytes."""

    graph: StepGraph
    fitting: Bools
    steps: list[ReshardStep]
    shortest: ShortestPaths

    def node(self, layout: Layout) -> int | None:
        """Return the node of ``layout``, or ``None`` if the tensor cannot have this layout."""
        node = self.graph.index.get(layout)
        return node if node is not None and self.fitting[node] else None


class StepGraph:
    """All layouts of tensors of one rank, and all steps between them.

    The graph is built once. `paths` then drops the layouts that do not fit a shape and computes the
    time of each step from the bytes of its input (see `Curve`).
    """

    def __init__(
        self,
        rank: int,
        mesh: Mesh,
        device: Device,
        reductions: tuple[Reduction, ...],
        others: SplitsOfDims,
    ) -> None:
        layouts = layouts_of_rank(rank, mesh, reductions, others)
        pieces = [_pieces(layout, rank, mesh) for layout in layouts]
        self.index = {layout: node for node, layout in enumerate(layouts)}
        self._pieces = np.array(pieces, dtype=np.int64).reshape(len(layouts), rank)
        self._cuts = self._pieces.prod(axis=1)
        self._copy = copy_line(2, device)
        self._split_as = {
            own: np.array([layout.split_of(own.dim) == own for layout in layouts], np.bool_)
            for own in (*map(split, range(rank)), *chain(*others.values()))
        }
        every = (s for x in layouts for s in steps_from(x, rank, mesh, reductions, others))
        steps = [step for step in every if step.dst in self.index]
        steps += permutes(layouts, rank, mesh)
        src = np.array([self.index[step.src] for step in steps], dtype=np.int64)
        dst = np.array([self.index[step.dst] for step in steps], dtype=np.int64)
        # By target, then sources with less memory first.
        order = np.lexsort((src, -self._cuts[src], dst))
        self._src, self._dst = src[order], dst[order]
        self._steps = [steps[number] for number in order.tolist()]
        joint = [[bool(x.blocks(dim) and x.units(dim)) for dim in range(rank)] for x in layouts]
        self._joint = np.array(joint, np.bool_).reshape(len(layouts), rank)
        self._slices = np.array([step.kind == "all_slice" for step in self._steps], np.bool_)
        self._arranges = np.array([s.arranged_dim is not None for s in self._steps], np.bool_)
        self._restores = np.array([s.restored_dim is not None for s in self._steps], np.bool_)
        curves = _curves(self._steps, mesh, device)
        self._fixed_s, self._s_per_byte = _line_table(curves)
        self._greatest: Bools = np.array([curve.greatest for curve in curves], dtype=np.bool_)
        self._s_per_root_byte = np.array([curve.s_per_root_byte for curve in curves])

    def paths(self, cuts: tuple[Cuts, ...], total_bytes: int) -> TensorPaths:
        """Return the paths for tensors of ``total_bytes``, with the ``cuts`` of each dimension."""
        (padded, grown), divisors = self._grown(cuts), np.empty(self._pieces.shape, dtype=np.int64)
        divisors[:] = [own.divisor for own in cuts]
        for dim, own in enumerate(cuts):
            for placement, other in own.others:
                divisors[self._split_as[placement], dim] = other.divisor
        fitting = ((divisors % self._pieces == 0) | padded).all(axis=1)
        kept = np.flatnonzero(fitting[self._src] & fitting[self._dst])
        if (grown > 1).any():
            kept = kept[self._nests(kept, grown)]
        steps = [self._steps[number] for number in kept.tolist()]
        part_bytes = total_bytes / self._cuts
        if (grown == 1).all() and not self._arranges.any() and not self._restores.any():
            src, dst = part_bytes[self._src[kept]], part_bytes[self._dst[kept]]
            edges = self._edges(kept, src, src + dst)
        else:
            edges = self._with_copies(kept, part_bytes * grown.prod(axis=1), grown)
        return TensorPaths(self, fitting, steps, ShortestPaths(len(fitting), edges))

    def _grown(self, cuts: tuple[Cuts, ...]) -> tuple[Bools, Floats]:
        """Return whether cuts list a ratio of padded size to size, and the ratio.

        Both are [layout, dimension].
        """
        padded, grown = np.zeros(self._pieces.shape, np.bool_), np.ones(self._pieces.shape)
        for dim, own in enumerate(cuts):
            for placement, each in ((split(dim), own), *own.others):
                for pieces, times in each.padded:
                    layouts = self._split_as[placement] & (self._pieces[:, dim] == pieces)
                    padded[layouts, dim], grown[layouts, dim] = True, times
        return padded, grown

    def _nests(self, steps: Ints, grown: Floats) -> Bools:
        """Return whether the parts of each of ``steps`` consist of whole parts, or make some.

        Parts rounded up do not: of 10 points, halves are 5 and 5, quarters 3, 3, 3 and 1. They do
        if the padded sizes of the dimension are equal. Parts of blocks in units only make the whole
        dimension.
        """
        src, dst = self._src[steps], self._dst[steps]
        whole = (self._pieces[src] == 1) | (self._pieces[dst] == 1)
        alike = (self._pieces[src] == self._pieces[dst]) | ~(self._joint[src] | self._joint[dst])
        nests: Bools = (whole | (alike & (grown[src] == grown[dst]))).all(axis=1)
        return nests

    def _with_copies(self, kept: Ints, part_bytes: Floats, grown: Floats) -> Edges:
        """Return the edges of steps, including steps that pad or reorder their input or output.

        Each of the moves around a step costs a copy. ``part_bytes`` are the bytes of one part per
        layout. Blocks in units are padded and cropped while they are reordered, or sliced.
        """
        src, dst = self._src[kept], self._dst[kept]
        before, after = part_bytes[src], part_bytes[dst]
        pads, crops = (grown[src] == 1) & (grown[dst] > 1), (grown[src] > 1) & (grown[dst] == 1)
        larger = pads & ~(self._joint[dst] & self._slices[kept, None])
        read = before * np.where(larger, grown[dst], 1.0).prod(axis=1)
        made = after * np.where(crops, grown[src], 1.0).prod(axis=1)
        pads, crops = pads & ~self._joint[dst], crops & ~self._joint[src]
        edges, copied_s = self._edges(kept, read, read + made), np.zeros(len(kept))
        peak = edges.peak_bytes
        copies = (
            (pads.any(axis=1), before, read),
            (crops.any(axis=1), after, made),
            (self._arranges[kept], read, read),
            (self._restores[kept], made, made),
        )
        for some, end, copied in copies:
            copied_s += np.where(some, self._copy.fixed_s + self._copy.s_per_byte * copied, 0.0)
            peak = np.maximum(peak, np.where(some, end + copied, 0.0))
        return Edges(src, dst, edges.time_s + copied_s, peak)

    def _edges(self, kept: Ints, read: Floats, peak: Floats) -> Edges:
        """Return the edges of steps with ``read`` input bytes and ``peak`` bytes in use."""
        lines_s = self._fixed_s[:, kept] + self._s_per_byte[:, kept] * read
        greatest = self._greatest[kept]
        own_s = np.where(greatest, lines_s.max(axis=0), lines_s.min(axis=0))
        time_s = own_s + self._s_per_root_byte[kept] * np.sqrt(read)
        return Edges(self._src[kept], self._dst[kept], time_s, peak)


def _pieces(layout: Layout, rank: int, mesh: Mesh) -> list[int]:
    """Return the number of pieces that each dimension is split into."""
    pieces = [1] * rank
    for extent, own in zip(mesh.shape, layout.placements, strict=True):
        if own.is_split:
            pieces[own.dim] *= extent
    return pieces


def _curves(steps: list[ReshardStep], mesh: Mesh, device: Device) -> list[Curve]:
    known: dict[tuple[str, tuple[int, ...]], Curve] = {}
    for step in steps:
        key = (step.kind, step.axes)
        if key not in known:
            known[key] = _curve(step, mesh, device)
    return [known[step.kind, step.axes] for step in steps]


def _line_table(curves: list[Curve]) -> tuple[Floats, Floats]:
    """Return fixed_s and s_per_byte of the lines of all curves, both as [line, curve]."""
    most = max((len(curve.lines) for curve in curves), default=1)
    rows = [(curve.lines * most)[:most] for curve in curves]
    table = np.array(rows, dtype=np.float64).reshape(len(curves), most, 2)
    return table[:, :, 0].T, table[:, :, 1].T


def _curve(step: ReshardStep, mesh: Mesh, device: Device) -> Curve:
    """Return the time of a step as a function of its input bytes."""
    if step.kind == "all_slice":
        return Curve((copy_line(2 / mesh.extent(step.axes), device),))
    if step.kind == "partialize":
        return Curve((copy_line(2, device),))
    return collective_curve(step.kind, step.axes, mesh, device)
