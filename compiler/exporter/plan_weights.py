"""Weights of a plan: parts that several ranks share are stored once, in a common file."""

from __future__ import annotations

from pathlib import Path

import onnx

from tensoropt.compiler.exporter.weight_file import WeightFile
from tensoropt.compiler.exporter.weights import Cut, ParameterSource, length
from tensoropt.compiler.layout.mesh import axis_name
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["PlanWeights"]

_ALL = "all"


class PlanWeights:
    """Writer of the weights from ``source`` for all graphs of a plan in ``directory``.

    Along the axes that do not split a weight, all ranks of ``mesh`` have the same part of it. Files
    are named by the other axes: ``weights/x=1.bin`` has the parts of the ranks at position 1 of
    axis x, ``weights/all.bin`` the weights of all ranks. An error in the context removes all files.
    """

    def __init__(self, directory: Path, mesh: Mesh, source: ParameterSource) -> None:
        self.directory, self.mesh, self.source = directory, mesh, source
        self._files: dict[str, WeightFile] = {}
        self._added: dict[tuple[str, str], onnx.TensorProto] = {}

    def __enter__(self) -> PlanWeights:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for file in self._files.values():
            file.close()
            if kind is not None:
                file.path.unlink(missing_ok=True)

    def add(self, name: str, layout: Layout, rank: int) -> onnx.TensorProto:
        """Return the initializer of the part of a parameter on ``rank``; its first use stores it.

        Raises `UserError` for a partial layout.
        """
        cuts = self.cuts(name, layout, rank)
        place = _place(layout, self.mesh, rank)
        if (place, name) not in self._added:
            if place not in self._files:
                location = f"weights/{place}.bin"
                self._files[place] = WeightFile(self.directory / location, location, self.source)
            self._added[place, name] = self._files[place].add(name, cuts)
        tensor = onnx.TensorProto()
        tensor.CopyFrom(self._added[place, name])
        return tensor

    def cuts(self, name: str, layout: Layout, rank: int) -> list[Cut]:
        """Return the cuts of a parameter on ``rank``; with padding they exceed its size.

        Padding of blocks, which may contain anything, has the first elements.
        """
        if layout.has_partial:
            raise UserError(f"parameter '{name}' is stored whole or split, got: {layout}")
        shape = self.source.shape(name)
        found = list[Cut]()
        for dim, size in enumerate(shape):
            own = layout.division(dim, size, self.mesh)
            runs = own.runs(self.mesh.linear(rank, layout.axes_splitting(dim)))
            if len(runs) == 1:
                found.append(slice(runs[0].start, runs[0].start + own.part))
            else:
                pairs = zip(runs, own.shares, strict=True)
                filled = ((run, slice(0, share - length(run))) for run, share in pairs)
                found.append(tuple(cut for both in filled for cut in both if length(cut)))
        return found


def _place(layout: Layout, mesh: Mesh, rank: int) -> str:
    """Return the name of the set of ranks that have the same part of a tensor as ``rank``."""
    placed = enumerate(layout.placements)
    split = [axis for axis, own in placed if own.is_split and mesh.shape[axis] > 1]
    at = mesh.coordinates(rank)
    return ".".join(f"{axis_name(axis)}={at[axis]}" for axis in split) or _ALL
