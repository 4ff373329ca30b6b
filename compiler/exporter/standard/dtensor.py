"""Export of the placements of parameters, inputs and outputs for PyTorch's DTensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensoropt.compiler.exporter.plan.describe import describe_module
from tensoropt.compiler.layout.mesh import axis_names
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import mesh_of
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.plan.entries import TensorEntry

__all__ = ["dtensor_document", "placement_of"]

_Made = list[str | dict[str, int]]
"""The name of a class, and its arguments."""


def dtensor_document(module: ir.Module) -> dict[str, Any]:
    """Return the mesh, and the placements by the names of the ONNX model.

    ``module`` has passed the search. Each dimension of the mesh has a placement: the name of its
    class in ``torch.distributed.tensor`` and the arguments, ``["Shard", {"dim": 0}]`` or
    ``["Replicate", {}]``. Like plans, DTensor splits a dimension by several mesh dimensions major
    first, in equal parts if they divide it. For another order than the mesh's,
    ``["_StridedShard", {"dim": 0, "split_factor": 2}]`` splits each of the two pieces that later
    mesh dimensions make. It also splits each block of a dimension in equal blocks.
    """
    mesh, rows = mesh_of(module.operation), describe_module(module)
    return {
        "mesh": {"shape": list(mesh.shape), "dim_names": list(axis_names(mesh.axes))},
        "parameters": _placements(rows["parameters"], mesh),
        "inputs": _placements(rows["inputs"], mesh),
        "outputs": _placements(rows["outputs"], mesh),
    }


def _placements(tensors: Sequence[TensorEntry], mesh: Mesh) -> dict[str, list[_Made]]:
    found: dict[str, list[_Made]] = {}
    for tensor in tensors:
        layout = Layout.parse(tensor["layout"])
        for dim in layout.padded_dims(tensor["shape"], mesh):
            if len(layout.axes_splitting(dim)) > 1:  # DTensor cuts each part again, rounded up
                raise UserError(
                    f"--dtensor: '{tensor['name']}': expected a size that the axes divide, "
                    f"got: {layout} of {tensor['shape'][dim]}"
                )
        found[tensor["name"]] = [placement_of(layout, axis, mesh) for axis in mesh.axes]
    return found


def placement_of(layout: Layout, axis: int, mesh: Mesh) -> _Made:
    """Return DTensor's placement on ``axis``.

    Inputs, outputs and parameters of a plan are never partial. Raises `UserError` for units and
    for blocks of unequal sizes, which DTensor does not have.
    """
    placement = layout.placements[axis]
    if placement.is_partial:
        raise UserError(f"--dtensor: expected a split or replicated tensor, got: {placement}")
    if not placement.is_split:
        return ["Replicate", {}]
    axes = layout.axes_splitting(placement.dim)
    before = tuple(other for other in axes[: axes.index(axis)] if other > axis)
    blocks = len(placement.blocks) or 1
    if placement.units:
        raise UserError(f"--dtensor: expected parts of any size, got: {placement}")
    if set(placement.blocks) > {1}:
        raise UserError(f"--dtensor: expected blocks of equal sizes, got: {placement}")
    pieces = mesh.extent(before) * blocks
    if pieces > 1:
        return ["_StridedShard", {"dim": placement.dim, "split_factor": pieces}]
    return ["Shard", {"dim": placement.dim}]
