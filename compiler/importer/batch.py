"""The batch dimension of a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tensoropt.compiler.importer.dimensions import name_dims
from tensoropt.compiler.importer.model_file import read_proto
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.plan.dims import Sizes

__all__ = ["batch_of"]


def batch_of(path: Path, dims: Mapping[str, Sizes]) -> tuple[str, int]:
    """Return the symbolic leading dimension of all inputs of a model, and its size in ``dims``.

    Raises UserError if the inputs do not share one.
    """
    proto = read_proto(path)
    name_dims(proto)
    stored = {tensor.name for tensor in proto.graph.initializer}
    inputs = [info for info in proto.graph.input if info.name not in stored]
    first = {info.name: [*info.type.tensor_type.shape.dim][:1] for info in inputs}
    names = {dim.dim_param for own in first.values() for dim in own}
    name = min(names, default="")
    size = dims.get(name)
    if len(names) != 1 or not all(first.values()) or not isinstance(size, int):
        given = {
            at: dim.dim_param or str(dim.dim_value) for at, own in first.items() for dim in own
        }
        got = ", ".join(f"'{at}' {given.get(at, 'a scalar')}" for at in first) or "no inputs"
        raise UserError(
            f"{path}: --micro-batches: expected inputs that all begin with one symbolic dimension, "
            f"which --dim fixes to the samples of a step, got: {got}"
        )
    return name, size
