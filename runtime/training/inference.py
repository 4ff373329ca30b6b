"""Conversion of a graph exported for training to its inference form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["for_inference"]


def for_inference(model: onnx.ModelProto) -> None:
    """Change the nodes of an ONNX ``model`` from training mode to inference mode, in place.

    BatchNormalization then uses running statistics, and Dropout returns its operand. A
    BatchNormalization with further results that are read, and a Dropout with a graph input as its
    mode, are unchanged. Linear in the number of nodes.
    """
    graph = model.graph
    read = {*_read(graph)}
    stored = {tensor.name for tensor in graph.initializer}
    given = {value.name for value in graph.input} - stored
    for node in graph.node:
        if node.domain not in ("", "ai.onnx"):
            continue
        if node.op_type == "BatchNormalization" and read.isdisjoint(node.output[1:]):
            _normalise(node)
        if node.op_type == "Dropout" and len(node.input) == 3 and node.input[2] not in given:
            del node.input[2:]
    unread = (stored & read).difference(_read(graph))  # weights that only the training mode read
    if unread:
        kept = [tensor for tensor in graph.initializer if tensor.name not in unread]
        del graph.initializer[:]
        graph.initializer.extend(kept)


def _read(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that a graph and its subgraphs read."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _read(attribute.g)
    yield from (value.name for value in graph.output)


def _normalise(node: onnx.NodeProto) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name != "training_mode"]
    if len(kept) < len(node.attribute):
        del node.attribute[:]
        node.attribute.extend(kept)
        del node.output[1:]
