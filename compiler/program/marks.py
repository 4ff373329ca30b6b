"""Reader of the marks of a training step: phases, leaders, gradients, state."""

from __future__ import annotations

from collections.abc import Callable

from tensoropt.compiler.program.graph import Graph, Node
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
        self._later: list[Callable[[], None]] = []

    def argument(self, node: Node, attributes: ir.DictAttr) -> None:
        """Read the attributes of an argument, the last node of the graph."""
        self._arguments[node.name] = len(self.graph.nodes) - 1
        node.state = keys.STATE.get(attributes)
        self._number(node, attributes)

    def op(self, node: Node, op: ir.Operation) -> None:
        """Read the attributes of an op, the last node of the graph."""
        attributes = op.attributes
        node.phase = onnx.phase(op)
        self._number(node, attributes)
        node.passes = onnx.is_pass_through(op)
        node.is_alias = node.passes or onnx.is_barrier(op)
        node.held, node.norm = keys.GRADIENT_OF.on(attributes), keys.NORM.on(attributes)
        if keys.GRADIENTS.on(attributes):
            fours = list(keys.GRADIENTS.of(attributes))
            self._later.append(lambda: self._gradients(node, fours))

    def result(self, node: Node, attributes: ir.DictAttr) -> None:
        """Read the attributes of a result, the last node of the graph."""
        self._number(node, attributes)
        if keys.UPDATES.on(attributes):
            node.updates = self._arguments[keys.UPDATES.of(attributes)]
        if keys.CACHE.on(attributes):
            node.takes_over = self._arguments[keys.CACHE.of(attributes)]
            self.graph.nodes[node.takes_over].is_cache = True

    def _number(self, node: Node, attributes: ir.OpAttributeMap | ir.DictAttr) -> None:
        if keys.ID.on(attributes):
            self._nodes[keys.ID.of(attributes)] = len(self.graph.nodes) - 1
        follows, repeats = keys.FOLLOWS.get(attributes), keys.REPEATS.get(attributes)
        if follows is not None or repeats is not None:
            self._later.append(lambda: self._refer(node, follows, repeats))

    def _refer(self, node: Node, follows: int | None, repeats: int | None) -> None:
        node.follows = None if follows is None else self._nodes[follows]
        node.repeats = None if repeats is None else self._nodes[repeats]

    def _gradients(self, node: Node, fours: list[int]) -> None:
        """Pair values with their gradients."""
        node.gradients = tuple(
            (self._value(*fours[at : at + 2]), self._value(*fours[at + 2 : at + 4]))
            for at in range(0, len(fours), 4)
        )

    def _value(self, number: int, result: int) -> int:
        return self.graph.nodes[self._nodes[number]].results[result]

    def resolve(self) -> None:
        """Replace all numbers by nodes."""
        for step in self._later:
            step()
