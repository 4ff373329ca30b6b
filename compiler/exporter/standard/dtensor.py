"""The placements of a plan's parameters, inputs and outputs, for PyTorch's DTensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensoropt.compiler.exporter.plan.describe import describe_module
from tensoropt.compiler.layout.layout import Layout, Placement
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import mesh_of
from tensoropt.runtime.plan.entries import TensorEntry

__all__ = ["dtensor_document"]


def dtensor_document(module: ir.Module) -> dict[str, Any]:
    """Return the mesh, and the placements by the names that the ONNX model has.

    ``module`` has passed the search. There is a placement per dimension of the mesh: the name of
    its class in ``torch.distributed.tensor`` and what that is made with, ``["Shard", 0]`` or
    ``["Replicate"]``. DTensor splits a dimension by several mesh dimensions major first, and in
    equal parts where it divides, as plans do.
    """
    mesh, rows = mesh_of(module.operation), describe_module(module)
    return {
        "mesh": {"shape": list(mesh.shape), "dim_names": list(mesh.axis_names)},
        "parameters": _placements(rows["parameters"]),
        "inputs": _placements(rows["inputs"]),
        "outputs": _placements(rows["outputs"]),
    }


def _placements(tensors: Sequence[TensorEntry]) -> dict[str, list[list[str | int]]]:
    return {
        tensor["name"]: [_placement(own) for own in Layout.parse(tensor["layout"]).placements]
        for tensor in tensors
    }


def _placement(placement: Placement) -> list[str | int]:
    """Return a placement; inputs, outputs and parameters of a plan are never partial."""
    if placement.is_partial:
        raise UserError(f"--dtensor: expected what is split or whole, got: {placement}")
    return ["Shard", placement.dim] if placement.is_split else ["Replicate"]
