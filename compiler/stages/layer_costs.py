"""Costs of the layers of a training step under one choice of strategies, for pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from tensoropt.compiler.program.costs import tensor_bytes
from tensoropt.compiler.program.evaluate import Evaluator
from tensoropt.compiler.program.graph import Graph, Node, Op
from tensoropt.compiler.program.timeline import Step, timeline_of
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["LayerCost", "StepCost", "step_cost"]


@dataclass(frozen=True)
class LayerCost:
    """Cost of consecutive layers on one rank, for one micro-batch unless it says otherwise.

    ``backward_s`` is the time of the gradients of activations and of recomputation, ``weights_s``
    that of the gradients of weights. ``once_s`` is spent once per step: gradients are reduced,
    parameters updated. ``static_bytes`` are parameters, gradients and moments. ``kept_bytes`` stay
    from the forward to the backward pass. ``weights_bytes`` are the activations and gradients that
    the gradients of weights read. ``sent_bytes`` pass to the next layer.
    """

    forward_s: float = 0.0
    backward_s: float = 0.0
    weights_s: float = 0.0
    once_s: float = 0.0
    static_bytes: int = 0
    kept_bytes: int = 0
    weights_bytes: int = 0
    sent_bytes: int = 0

    @property
    def work_s(self) -> float:
        """The time of all passes of one micro-batch."""
        return self.forward_s + self.backward_s + self.weights_s

    @staticmethod
    def sum(layers: Sequence[LayerCost]) -> LayerCost:
        """Return the cost of consecutive layers together; the last one sends to the next."""
        names = [own.name for own in fields(LayerCost) if own.name != "sent_bytes"]
        total = LayerCost(**{name: sum(getattr(own, name) for own in layers) for name in names})
        return replace(total, sent_bytes=layers[-1].sent_bytes if layers else 0)


@dataclass(frozen=True)
class StepCost:
    """Costs of the layers of a step in order, and the memory of temporary tensors of one layer."""

    layers: tuple[LayerCost, ...]
    working_bytes: int


def step_cost(point: FrontierPoint, layers: Sequence[str]) -> StepCost:
    """Return the costs of a training step by layer; ``layers`` has the layer of each node.

    Layers are in the order of their first forward op. Linear in the operands of the program.
    """
    return _Reader(point, layers).cost()


class _Reader:
    def __init__(self, point: FrontierPoint, layers: Sequence[str]) -> None:
        self.point, self.graph, self.mesh = point, point.tables.graph, Mesh(point.mesh)
        forward = filter(self._is_forward, range(len(self.graph.nodes)))
        order = {name: n for n, name in enumerate(dict.fromkeys(layers[i] for i in forward))}
        self.place = [order.get(name, 0) for name in layers]
        self.count = len(order)
        self.for_weights = _weight_ops(self.graph, self.place)

    def cost(self) -> StepCost:
        timeline = timeline_of(Evaluator(self.point.tables), self.point.assignment)
        costs = [LayerCost() for _ in range(self.count)]
        for step in timeline.steps:
            if step.node is not None:
                at = self.place[self._owner(step)]
                costs[at] = self._with_step(costs[at], step)
        for kept in timeline.kept:
            at = self.place[self.graph.values[kept.value].producer]
            costs[at] = replace(costs[at], static_bytes=costs[at].static_bytes + kept.bytes)
        self._keep(costs)
        kept_bytes = sum(own.kept_bytes for own in costs)
        return StepCost(tuple(costs), max(timeline.cost.transient_bytes - kept_bytes, 0))

    def _owner(self, step: Step) -> int:
        """Return the node with the layer of a step: the op that made a resharded tensor, if any."""
        movement = step.movement
        if movement is not None and movement.value is not None:
            producer = self.graph.values[movement.value].producer
            if isinstance(self.graph.nodes[producer], Op):
                return producer
        assert step.node is not None
        return step.node

    def _with_step(self, cost: LayerCost, step: Step) -> LayerCost:
        assert step.node is not None
        node = self.graph.nodes[step.node]
        times = self.graph.times(node)
        once = times == 1 and (self.graph.micro_batches > 1 or self.graph.updates(node))
        if once:
            return replace(cost, once_s=cost.once_s + step.time_s)
        time_s = step.time_s / times
        if not isinstance(node, Op) or node.is_forward:
            return replace(cost, forward_s=cost.forward_s + time_s)
        if step.node in self.for_weights:
            return replace(cost, weights_s=cost.weights_s + time_s)
        return replace(cost, backward_s=cost.backward_s + time_s)

    def _keep(self, costs: list[LayerCost]) -> None:
        """Add the bytes of tensors that stay between passes, and that pass between layers."""
        for number, value in enumerate(self.graph.values):
            maker = self.graph.nodes[value.producer]
            if not _runs(maker) or value.info is None or number in self.graph.storage.constants:
                continue
            layout = self.point.strategies[value.producer].results[value.index]
            size = tensor_bytes(value.info, layout, self.mesh)
            at, readers = self.place[value.producer], [reader for reader, _ in value.uses]
            if (
                any(r in self.for_weights for r in readers)
                and value.producer not in self.for_weights
            ):
                costs[at] = replace(costs[at], weights_bytes=costs[at].weights_bytes + size)
            if not self._is_forward(value.producer):
                continue
            passed = [self.place[r] for r in readers if self._is_forward(r)]
            if len(passed) < sum(_runs(self.graph.nodes[r]) for r in readers):
                costs[at] = replace(costs[at], kept_bytes=costs[at].kept_bytes + size)
            for layer in range(at, max(passed, default=at)):
                costs[layer] = replace(costs[layer], sent_bytes=costs[layer].sent_bytes + size)

    def _is_forward(self, index: int) -> bool:
        node = self.graph.nodes[index]
        return isinstance(node, Op) and not node.constant and node.is_forward


def _runs(node: Node) -> bool:
    return isinstance(node, Op) and not node.constant


def _weight_ops(graph: Graph, place: Sequence[int]) -> frozenset[int]:
    """Return the backward ops with results that only lead to gradients of their layer's weights."""
    found: set[int] = set()
    for index in reversed(range(len(graph.nodes))):
        node = graph.nodes[index]
        if not isinstance(node, Op) or node.constant or node.is_forward or graph.updates(node):
            continue
        readers = {reader for value in node.results for reader, _ in graph.values[value].uses}
        if readers and all(
            graph.updates(graph.nodes[reader])
            or (reader in found and place[reader] == place[index])
            for reader in readers
        ):
            found.add(index)
    return frozenset(found)
