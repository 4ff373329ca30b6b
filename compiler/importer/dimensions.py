"""Open sizes of a model: each has a name, by which it can be fixed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx

from tensoropt.compiler.protos.subgraphs import subgraphs
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import arguments, function
from tensoropt.dialects.topt import keys
from tensoropt.runtime.plan.dims import Sizes, bound, default_name, terms

__all__ = ["bind_dims", "name_dims", "open_dims"]

_NO_NAMES = ("?", "None", "-1")
"""Placeholders that exporters write instead of the name of an unknown size."""


def name_dims(proto: onnx.ModelProto) -> None:
    """Name each input dimension that has neither size nor name `input:index`.

    A negative size is not a size, and a `?` is not a name: two of them need not be equal. For inner
    values and outputs, such entries are cleared.
    """
    for graph, _ in subgraphs(proto.graph):
        for dim in _dims(graph):
            if dim.dim_param in _NO_NAMES or dim.dim_value < 0:
                dim.Clear()
    stored = {tensor.name for tensor in proto.graph.initializer}
    for info in proto.graph.input:
        for index, dim in enumerate(info.type.tensor_type.shape.dim):
            if not dim.dim_param and not dim.HasField("dim_value") and info.name not in stored:
                dim.dim_param = default_name(info.name, index)


def bind_dims(path: Path, proto: onnx.ModelProto, dims: Mapping[str, Sizes]) -> None:
    """Replace the symbolic dimensions named in ``dims``, and sums of them, by their sizes.

    Dimensions with a range in ``dims`` remain symbolic.
    """
    given = [dim for info in proto.graph.input for dim in info.type.tensor_type.shape.dim]
    params = {dim.dim_param for dim in given if dim.dim_param}
    known = params.union(*map(terms, params))
    for name in dims:
        if name not in known:
            expected = "all of its sizes are known, expected no --dim"
            if known:
                expected = f"expected one of: {', '.join(sorted(known))}"
            raise UserError(f"{path}: no symbolic dimension '{name}', {expected}")
    fixed = {name: size for name, size in dims.items() if isinstance(size, int)}
    for graph, _ in subgraphs(proto.graph) if fixed else ():
        for dim in _dims(graph):
            size = bound(dim.dim_param, fixed) if dim.dim_param else None
            if isinstance(size, int):
                dim.dim_value = size
            elif size is not None:
                dim.dim_param = size


def open_dims(module: ir.Module) -> list[str]:
    """Return the distinct names of open sizes among the inputs of an imported ``module``.

    Names with a range are excluded.
    """
    found, ranges = dict[str, None](), keys.RANGES.get(module.operation.attributes, {})
    for _, attributes in arguments(function(module)):
        names = keys.DIMS.get(attributes, [])
        found.update((name, None) for name in filter(None, names) if name not in ranges)
    each = dict.fromkeys(term for name in found for term in terms(name))
    return [term for term in each if term not in ranges]


def _dims(graph: onnx.GraphProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    for info in (*graph.input, *graph.output, *graph.value_info):
        yield from info.type.tensor_type.shape.dim
