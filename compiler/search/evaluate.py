"""The cost of one complete choice, as the emitted graphs will have it.

The search charges every use of a tensor for its own reshard and knows the memory of one step at a
time. Here each distinct reshard is paid once and memory follows from the lifetimes of all tensors
over the program, in the order that the emitted graphs keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.compiler.cost.memory import Lifetimes
from tensoropt.compiler.layout.layout import Layout
from tensoropt.compiler.layout.reshard import Path
from tensoropt.compiler.search.graph import Node
from tensoropt.compiler.search.tables import MeshTables, tensor_bytes
from tensoropt.compiler.sharding.rule import Strategy

__all__ = ["Cost", "evaluate"]


@dataclass(frozen=True)
class Cost:
    """Predicted time of a step and memory of a device."""

    compute_s: float
    communication_s: float
    static_bytes: int
    transient_bytes: int

    @property
    def time_s(self) -> float:
        return self.compute_s + self.communication_s

    @property
    def memory_bytes(self) -> int:
        return self.static_bytes + self.transient_bytes


def evaluate(tables: MeshTables, strategies: dict[int, Strategy]) -> Cost:
    """Return the cost of giving each choosing node its strategy; linear in the operands.

    ``strategies`` maps node indices to strategies, for every node that is not tied.
    """
    return _Evaluation(tables, strategies).run()


class _Evaluation:
    def __init__(self, tables: MeshTables, strategies: dict[int, Strategy]) -> None:
        self.tables = tables
        self.graph = tables.graph
        self.strategies = strategies
        self.lifetimes = Lifetimes()
        self.done: set[tuple[int, Layout]] = set()
        self.compute_s = self.communication_s = 0.0
        self.static_bytes = 0

    def run(self) -> Cost:
        for index, node in enumerate(self.graph.nodes):
            if not node.tied:
                self._node(index, node)
        peak = self.lifetimes.peak_bytes()
        return Cost(self.compute_s, self.communication_s, self.static_bytes, peak)

    def _node(self, index: int, node: Node) -> None:
        strategy = self.strategies[index]
        self.static_bytes += self.tables.static_bytes(node, strategy)
        operands = [
            self._operand(value, strategy.operands[operand])
            for operand, value in enumerate(node.operands)
            if value is not None and not self.graph.producer(value).tied
        ]
        for tensor in operands:
            self.lifetimes.use(tensor)
        for value, layout in zip(node.results, strategy.results, strict=True):
            if not node.constant:
                self._define(value, layout)
        self.compute_s += self.tables.op_time_s(node, strategy)
        self.communication_s += self.tables.inner_time_s(node, strategy)
        if node.kind == "op":
            self.lifetimes.advance()

    def _operand(self, value: int, target: Layout) -> tuple[int, Layout]:
        """Return the tensor that holds ``value`` in ``target``, resharding it the first time."""
        held = self.graph.values[value]
        source = self.strategies[held.producer].results[held.index]
        if source != target and held.info is not None and (value, target) not in self.done:
            self.done.add((value, target))
            path = self.tables.resharder.path(held.info.shape, held.info.item_bytes, source, target)
            if not self.graph.nodes[held.producer].constant:
                self.communication_s += path.time_s
            self._walk(value, source, path)
        return value, target

    def _walk(self, value: int, source: Layout, path: Path) -> None:
        tensor: object = (value, source)
        for number, step in enumerate(path.steps):
            self.lifetimes.use(tensor)
            last = number == len(path.steps) - 1
            tensor = (value, step.dst) if last else (value, path, number)
            self._define_as(tensor, value, step.dst)
            self.lifetimes.advance()

    def _define(self, value: int, layout: Layout) -> None:
        self._define_as((value, layout), value, layout)

    def _define_as(self, tensor: object, value: int, layout: Layout) -> None:
        info = self.graph.values[value].info
        self.lifetimes.define(tensor, tensor_bytes(info, layout, self.tables.mesh))
