"""What a model computes inside, and models without what nothing needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import onnx

from fuzz.builder import Array, session_of
from fuzz.graphs import Case

__all__ = ["pruned", "read_by", "values_of"]


def values_of(case: Case, names: Sequence[str]) -> dict[str, Array]:
    """Return the values that the model gives to ``names``, its own outputs or not."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    if not names:
        return {}
    found = session_of(model.SerializeToString()).run(None, case.feeds)
    return dict(zip(names, found, strict=True))


def read_by(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, its subgraphs included."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                yield from read_by(inner)
            yield from (value.name for value in attribute.g.output)


def pruned(case: Case) -> Case:
    """Return the case without nodes, inputs and initializers that no output needs."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph = model.graph
    needed = {value.name for value in graph.output}
    nodes = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            nodes.append(node)
            needed.update(read_by(node))
    del graph.node[:]
    graph.node.extend(reversed(nodes))
    for held in (graph.input, graph.initializer):
        kept = [item for item in held if item.name in needed]
        del held[:]
        held.extend(kept)
    feeds = {name: array for name, array in case.feeds.items() if name in needed}
    return replace(case, model=model, feeds=feeds, dims=kept_dims(model, case.dims))


def kept_dims(model: onnx.ModelProto, dims: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of those symbolic dimensions that the inputs of ``model`` have."""
    used = {d.dim_param for v in model.graph.input for d in v.type.tensor_type.shape.dim}
    return {name: size for name, size in dims.items() if name in used}
