"""Reader of the marks of a training step: phases, leaders, gradients, state."""

from __future__ import annotations

from tensoropt.compiler.program.graph import Argument, Graph, Node, Op, Result
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["Marks"]


class Marks:
    """Reads the marks of each node; numbers are replaced by nodes when all nodes are read.

    ``training/marks.py`` writes the marks; a graph without marks is unchanged.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._nodes: dict[int, int] = {}  # the number of an op or argument -> its node
        self._arguments: dict[str, int] = {}
        self._leaders: list[tuple[Node, int]] = []
        self._originals: list[tuple[Op, int]] = []
        self._gradients: list[tuple[Op, list[int]]] = []

    def argument(self, node: Argument, attributes: ir.DictAttr) -> None:
        """Read the attributes of an argument, the last node of the graph."""
        self._arguments[node.name] = len(self.graph.nodes) - 1
        node.state = keys.STATE.get(attributes)
        self._number(node, attributes)

    def op(self, node: Op, op: ir.Operation) -> None:
        """Read the attributes of an op, the last node of the graph."""
        attributes = op.attributes
        node.phase = onnx.phase(op)
        self._number(node, attributes)
        node.passes = onnx.is_pass_through(op)
        node.held, node.norm = keys.GRADIENT_OF.on(attributes), keys.NORM.on(attributes)
        if keys.REPEATS.on(attributes):
            self._originals.append((node, keys.REPEATS.of(attributes)))
        if keys.GRADIENTS.on(attributes):
            self._gradients.append((node, list(keys.GRADIENTS.of(attributes))))

    def result(self, node: Result, attributes: ir.DictAttr) -> None:
        """Read the attributes of a result, the last node of the graph."""
        self._number(node, attributes)
        if keys.UPDATES.on(attributes):
            node.updates = self._arguments[keys.UPDATES.of(attributes)]
        if keys.CACHE.on(attributes):
            node.takes_over = self._arguments[keys.CACHE.of(attributes)]

    def _number(self, node: Node, attributes: ir.OpAttributeMap | ir.DictAttr) -> None:
        if keys.ID.on(attributes):
            self._nodes[keys.ID.of(attributes)] = len(self.graph.nodes) - 1
        if keys.FOLLOWS.on(attributes):
            self._leaders.append((node, keys.FOLLOWS.of(attributes)))

    def resolve(self) -> None:
        """Replace all numbers by nodes."""
        for node, leader in self._leaders:
            node.follows = self._nodes[leader]
        for op, original in self._originals:
            op.repeats = self._nodes[original]
        for op, fours in self._gradients:
            values = [
                self.graph.nodes[self._nodes[number]].results[result]
                for number, result in zip(fours[::2], fours[1::2], strict=True)
            ]
            op.gradients = tuple(zip(values[::2], values[1::2], strict=True))
