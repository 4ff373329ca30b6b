"""The graph of layouts and steps for tensors of one rank, with what each step costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.cost.communication import Curve, collective_curve, copy_line
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.layout import Layout, Reduction
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.reshard.shortest import Edges, Floats, ShortestPaths
from tensoropt.compiler.reshard.steps import ReshardStep, layouts_of_rank, steps_from

__all__ = ["StepGraph", "TensorPaths"]

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class TensorPaths:
    """Shortest paths between the layouts that divide one shape, at one size in bytes."""

    graph: StepGraph
    fitting: Bools
    steps: list[ReshardStep]
    shortest: ShortestPaths

    def node(self, layout: Layout) -> int | None:
        """Return the number of ``layout``, or ``None`` if the tensor cannot lie that way."""
        node = self.graph.index.get(layout)
        return node if node is not None and self.fitting[node] else None


class StepGraph:
    """All layouts of tensors of one rank, and all steps between them.

    Built once; a shape then leaves out the layouts that do not divide it, and its size fills in the
    costs: each step takes a time in the bytes of its input, see `Curve`.
    """

    def __init__(
        self, rank: int, mesh: Mesh, device: Device, reductions: tuple[Reduction, ...]
    ) -> None:
        layouts = layouts_of_rank(rank, mesh, reductions)
        pieces = [_pieces(layout, rank, mesh) for layout in layouts]
        self.index = {layout: node for node, layout in enumerate(layouts)}
        self._pieces = np.array(pieces, dtype=np.int64).reshape(len(layouts), rank)
        self._cuts = self._pieces.prod(axis=1)
        every = (s for x in layouts for s in steps_from(x, rank, mesh, reductions))
        steps = [step for step in every if step.dst in self.index]
        src = np.array([self.index[step.src] for step in steps], dtype=np.int64)
        dst = np.array([self.index[step.dst] for step in steps], dtype=np.int64)
        # By target, and of one target those that hold less memory first.
        order = np.lexsort((src, -self._cuts[src], dst))
        self._src, self._dst = src[order], dst[order]
        self._steps = [steps[number] for number in order.tolist()]
        self._fixed_s, self._s_per_byte, self._greatest = _line_table(self._steps, mesh, device)

    def paths(self, divisors: tuple[int, ...], total_bytes: int) -> TensorPaths:
        """Return the paths for tensors of ``total_bytes``.

        ``divisors`` gives per dimension any number that has the same divisors in common with the
        number of ranks as the size has: 1 where it cannot be split.
        """
        fitting = (np.array(divisors, dtype=np.int64) % self._pieces == 0).all(axis=1)
        kept = np.flatnonzero(fitting[self._src] & fitting[self._dst])
        steps = [self._steps[number] for number in kept.tolist()]
        shortest = ShortestPaths(len(fitting), self._edges(kept, total_bytes))
        return TensorPaths(self, fitting, steps, shortest)

    def _edges(self, kept: npt.NDArray[np.int64], total_bytes: int) -> Edges:
        src, dst = self._src[kept], self._dst[kept]
        before, after = total_bytes / self._cuts[src], total_bytes / self._cuts[dst]
        lines_s = self._fixed_s[:, kept] + self._s_per_byte[:, kept] * before
        greatest = self._greatest[kept]
        time_s = np.where(greatest, lines_s.max(axis=0), lines_s.min(axis=0))
        return Edges(src, dst, time_s, before + after)


def _pieces(layout: Layout, rank: int, mesh: Mesh) -> list[int]:
    """Return into how many pieces each dimension is cut."""
    pieces = [1] * rank
    for extent, own in zip(mesh.shape, layout.placements, strict=True):
        if own.is_split:
            pieces[own.dim] *= extent
    return pieces


def _line_table(
    steps: list[ReshardStep], mesh: Mesh, device: Device
) -> tuple[Floats, Floats, Bools]:
    """Return fixed_s and s_per_byte of the lines of all steps, both as [line, step], and of which
    steps the greatest line counts."""
    known: dict[tuple[str, tuple[int, ...]], Curve] = {}
    for step in steps:
        key = (step.kind, step.axes)
        if key not in known:
            known[key] = _curve(step, mesh, device)
    curves = [known[step.kind, step.axes] for step in steps]
    most = max((len(curve.lines) for curve in curves), default=1)
    rows = [(curve.lines * most)[:most] for curve in curves]
    table = np.array(rows, dtype=np.float64).reshape(len(steps), most, 2)
    greatest = np.array([curve.greatest for curve in curves], dtype=np.bool_)
    return table[:, :, 0].T, table[:, :, 1].T, greatest


def _curve(step: ReshardStep, mesh: Mesh, device: Device) -> Curve:
    """Return the time of a step in the bytes of its input."""
    if step.kind == "all_slice":
        return Curve((copy_line(2 / mesh.extent(step.axes), device),))
    if step.kind == "partialize":
        return Curve((copy_line(2, device),))
    return collective_curve(step.kind, step.axes, mesh, device)
