"""Properties of nodes and values for ONNX Runtime's arena, as flags of ``walk/images.hpp``.

Convolutions and the ops after them have images in blocks of channels (NCHWc). All other ops and
collectives use plain images, so copies are live next to the tensors of a program.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.program.graph import Argument, Graph, Node, Op, Result, once_per_graph
from tensoropt.compiler.program.program import variables

__all__ = ["images_of"]

# Flags of `Images` in walk/images.hpp.
_OP, _BLOCKS, _KEEPS, _FUSES, _SUMS, _FOLDS, _IN_PLACE, _PRODUCT, _ADDS_WEIGHT = (
    1 << bit for bit in range(9)
)
_COPIES = 0, 1 << 9, 3 << 9
_IMAGE, _OUTSIDE = 1, 2

_READS_BLOCKS = ("Conv", "MaxPool", "AveragePool")
"""Operators that read any image in blocks, and return images in blocks."""

_FUSED = ("BatchNormalization", "Relu", "Sigmoid", "Tanh", "Clip", "LeakyRelu")
"""Operators that are fused into the producer of their operand if that is in blocks."""

_KEEP = (*_FUSED, "Add", "Sum", "Concat", "GlobalAveragePool", "GlobalMaxPool")
"""Operators that read images in blocks if all of their operands already are."""

_WRITE_IN_PLACE = (
    *("Relu", "Sigmoid", "Tanh", "Clip", "LeakyRelu", "Elu", "HardSigmoid", "Softplus"),
    *("Softmax", "LogSoftmax", "Trilu"),
    *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"),
)
"""Operators that overwrite their operand if nothing else reads it."""

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
"""Images with fewer channels, such as RGB, are not stored in blocks."""


@once_per_graph
def images_of(graph: Graph) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
    """Return flags of the nodes and of the values of a program. Linear in the operands."""
    nodes = [_node(graph, graph.nodes[index]) for index in variables(graph)]
    outside = _find_outside(graph)
    values = [
        _IMAGE * _is_image(graph, value) + _OUTSIDE * (value in outside)
        for value in range(len(graph.values))
    ]
    return np.array(nodes, np.uint16), np.array(values, np.uint8)


def _node(graph: Graph, node: Node) -> int:
    if not isinstance(node, Op) or node.constant or node.source is None:
        return 0
    name = str(node.source.name).removeprefix("onnx.")
    adds_weight = name == "Add" and not graph.storage.weights.isdisjoint(node.operands)
    # Weights of a training step are no constants: they cannot be laid out for blocks.
    flags = 0 if graph.trains and name == "Conv" else _FLAGS.get(name, 0)
    copies = _COPIES[_selected(graph, node)] if name == "Where" else 0
    return _OP + flags + _ADDS_WEIGHT * adds_weight + copies


def _selected(graph: Graph, node: Node) -> int:
    """Return how many values of a `Where` are as large as its result under a broadcast condition.

    ONNX Runtime copies the selected elements of each value before it merges them.
    """
    made, condition, *values = (_sizes(graph, v) for v in (node.results[0], *node.operands))
    return sum(np.broadcast_shapes(condition, value) == made for value in values)


def _sizes(graph: Graph, value: int | None) -> tuple[int, ...]:
    """Return the sizes of a value, with 1 for symbolic sizes."""
    info = None if value is None else graph.values[value].info
    sizes = () if info is None else info.sizes
    return tuple(size if isinstance(size, int) else 1 for size in sizes)


def _find_outside(graph: Graph) -> set[int | None]:
    """Return inputs and outputs, except of training steps."""
    if graph.trains:
        return set()
    ends = {node.operands[0] for node in graph.nodes if isinstance(node, Result)}
    return ends | {v for node in graph.nodes if isinstance(node, Argument) for v in node.results}


def _is_image(graph: Graph, value: int) -> bool:
    info = graph.values[value].info
    if info is None or len(info.sizes) != 4:
        return False
    channels = info.sizes[1]
    return not isinstance(channels, int) or channels >= _LEAST_CHANNELS
