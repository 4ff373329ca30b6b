"""What nodes and values are to ONNX Runtime's arena: ``engine/images.hpp`` says what follows.

Convolutions and what follows them have images in blocks of channels (NCHWc), which all else has
not, collectives among them: copies come and go beside the tensors of a program.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.search.problem.graph import Graph, Node
from tensoropt.compiler.search.problem.program import once_per_graph, variables

__all__ = ["images_of"]

# Flags of `Images` in engine/images.hpp.
_OP, _BLOCKS, _KEEPS, _FUSES, _SUMS, _FOLDS, _IN_PLACE, _PRODUCT, _ADDS_WEIGHT = (
    1 << bit for bit in range(9)
)
_COPIES = 0, 1 << 9, 3 << 9
_IMAGE, _OUTSIDE = 1, 2

_READS_BLOCKS = ("Conv", "MaxPool", "AveragePool")
"""Operators that read images in blocks, whatever made them, and give such."""

_FUSED = ("BatchNormalization", "Relu", "Sigmoid", "Tanh", "Clip", "LeakyRelu")
"""Operators that become part of what made their operand, where that is in blocks."""

_KEEP = (*_FUSED, "Add", "Sum", "Concat", "GlobalAveragePool", "GlobalMaxPool")
"""Operators that read images in blocks where all of theirs are so already."""

_WRITE_IN_PLACE = (
    *("Relu", "Sigmoid", "Tanh", "Clip", "LeakyRelu", "Elu", "HardSigmoid", "Softplus"),
    *("Softmax", "LogSoftmax", "Trilu"),
    *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"),
)
"""Operators whose result lies where their operand does, if nothing else reads that."""

_OPERATORS = {
    _BLOCKS: _READS_BLOCKS,
    _KEEPS: _KEEP,
    _FUSES: _FUSED,
    _SUMS: ("Add", "Sum"),
    _FOLDS: ("Conv", "BatchNormalization"),
    _IN_PLACE: _WRITE_IN_PLACE,
    _PRODUCT: ("MatMul",),
}
_FLAGS = {
    name: sum(flag for flag, names in _OPERATORS.items() if name in names)
    for names in _OPERATORS.values()
    for name in names
}

_LEAST_CHANNELS = 8
"""Images with fewer, such as of three colours, are read as they are."""


@once_per_graph
def images_of(graph: Graph) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
    """Return flags of the nodes and of the values of a program. Linear in the operands."""
    nodes = [_node(graph, graph.nodes[index]) for index in variables(graph)]
    outside = _outside(graph)
    values = [
        _IMAGE * _is_image(graph, value) + _OUTSIDE * (value in outside)
        for value in range(len(graph.values))
    ]
    return np.array(nodes, np.uint16), np.array(values, np.uint8)


def _node(graph: Graph, node: Node) -> int:
    if node.kind != "op" or node.constant or node.op is None:
        return 0
    name = str(node.op.name).removeprefix("onnx.")
    adds_weight = name == "Add" and any(
        value is not None and graph.is_weight(value) for value in node.operands
    )
    # Weights of a training step are no constants: they cannot be laid out for blocks.
    flags = 0 if graph.trains and name == "Conv" else _FLAGS.get(name, 0)
    copies = _COPIES[_selected(graph, node)] if name == "Where" else 0
    return _OP + flags + _ADDS_WEIGHT * adds_weight + copies


def _selected(graph: Graph, node: Node) -> int:
    """Return how many of a `Where`'s operands are as large as its result where the condition is
    spread over them: ONNX Runtime makes what it takes of each before it puts them together."""
    made, condition, *values = (_sizes(graph, v) for v in (node.results[0], *node.operands))
    return sum(np.broadcast_shapes(condition, value) == made for value in values)


def _sizes(graph: Graph, value: int | None) -> tuple[int, ...]:
    """Return the sizes of a value, 1 for those that are open."""
    info = None if value is None else graph.values[value].info
    sizes = () if info is None else info.sizes
    return tuple(size if isinstance(size, int) else 1 for size in sizes)


def _outside(graph: Graph) -> set[int | None]:
    """Return inputs and outputs, but of training steps."""
    if graph.trains:
        return set()
    ends = {node.operands[0] for node in graph.nodes if node.kind == "result"}
    return ends | {v for node in graph.nodes if node.kind == "argument" for v in node.results}


def _is_image(graph: Graph, value: int) -> bool:
    info = graph.values[value].info
    if info is None or len(info.sizes) != 4:
        return False
    channels = info.sizes[1]
    return not isinstance(channels, int) or channels >= _LEAST_CHANNELS
