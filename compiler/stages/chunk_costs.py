"""Costs of the chunks of a training step under one choice of strategies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tensoropt.compiler.program.costs import tensor_bytes
from tensoropt.compiler.program.graph import Argument, Graph, Op
from tensoropt.compiler.program.timeline import Step, Timeline
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.training.weight_gradients import weight_gradients
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["Costs", "StepCosts", "chunk_costs", "chunk_homes", "weight_nodes"]


@dataclass
class Costs:
    """Costs of a chunk on one rank, for one micro-batch unless it says otherwise.

    ``backward_s`` is the time of the gradients of activations and of recomputation, ``weights_s``
    the time of the gradients of weights. ``once_s`` is spent once per step: gradients are reduced,
    parameters updated. ``static_bytes`` are parameters, gradients and moments. ``kept_bytes`` stay
    from the forward to the backward pass. ``weights_bytes`` are the activations and gradients that
    the gradients of weights read. ``sent_bytes`` pass to the next chunk.
    """

    forward_s: float = 0.0
    backward_s: float = 0.0
    weights_s: float = 0.0
    once_s: float = 0.0
    static_bytes: int = 0
    kept_bytes: int = 0
    weights_bytes: int = 0
    sent_bytes: int = 0


@dataclass(frozen=True)
class StepCosts:
    """Costs of the chunks of a step in order, and the memory of temporary tensors of one chunk."""

    chunks: tuple[Costs, ...]
    working_bytes: int


def chunk_costs(
    point: FrontierPoint, timeline: Timeline, numbers: Sequence[int | None], count: int
) -> StepCosts:
    """Return the costs of ``count`` chunks by the timeline of a point.

    ``numbers`` has the chunk of each node that has one. Linear in the operands of the program.
    """
    return _Reader(point, numbers, count).costs(timeline)


class _Reader:
    def __init__(self, point: FrontierPoint, numbers: Sequence[int | None], count: int) -> None:
        self.point, self.graph, self.mesh = point, point.tables.graph, Mesh(point.mesh)
        self.home = chunk_homes(self.graph, numbers)
        self.chunks = [Costs() for _ in range(count)]
        self.for_weights = weight_nodes(self.graph, self.home)

    def costs(self, timeline: Timeline) -> StepCosts:
        for step in timeline.steps:
            if step.node is not None:
                self._add_time(step, step.node)
        for kept in timeline.kept:
            producer = self.graph.values[kept.value].producer
            self.chunks[self.home[producer]].static_bytes += kept.bytes
        self._add_bytes()
        kept_bytes = sum(own.kept_bytes for own in self.chunks)
        return StepCosts(tuple(self.chunks), max(timeline.cost.transient_bytes - kept_bytes, 0))

    def _add_time(self, step: Step, index: int) -> None:
        node, own = self.graph.nodes[index], self.chunks[self.home[index]]
        times = self.graph.times(node)
        if times == 1 and (self.graph.micro_batches > 1 or self.graph.updates(node)):
            own.once_s += step.time_s
        elif not isinstance(node, Op) or node.is_forward:
            own.forward_s += step.time_s / times
        elif index in self.for_weights:
            own.weights_s += step.time_s / times
        else:
            own.backward_s += step.time_s / times

    def _add_bytes(self) -> None:
        """Add the bytes of tensors that stay between passes, and that pass between chunks."""
        for number, value in enumerate(self.graph.values):
            maker = self.graph.nodes[value.producer]
            is_made = isinstance(maker, Op) and not maker.constant
            if not is_made or value.info is None or number in self.graph.storage.constants:
                continue
            layout = self.point.strategies[value.producer].results[value.index]
            size = tensor_bytes(value.info, layout, self.mesh)
            at, readers = self.home[value.producer], {reader for reader, _ in value.uses}
            if readers & self.for_weights and value.producer not in self.for_weights:
                self.chunks[at].weights_bytes += size
            if not self.graph.runs_forward(value.producer):
                continue
            forward = {reader for reader in readers if self.graph.runs_forward(reader)}
            if any(isinstance(self.graph.nodes[reader], Op) for reader in readers - forward):
                self.chunks[at].kept_bytes += size
            for chunk in range(at, max((self.home[reader] for reader in forward), default=at)):
                self.chunks[chunk].sent_bytes += size


def chunk_homes(graph: Graph, numbers: Sequence[int | None]) -> list[int]:
    """Return the chunk of each node: state has its readers' chunk, an update its gradient's.

    Nodes of all chunks, such as the learning rate and the norm of all gradients, are in the first.
    """
    homes = list(numbers)

    def settle(index: int, near: Iterable[int]) -> None:
        known = [number for number in (homes[other] for other in near) if number is not None]
        if homes[index] is None and known:
            homes[index] = min(known)

    def readers(index: int) -> Iterator[int]:
        return (r for value in graph.nodes[index].results for r, _ in graph.values[value].uses)

    for index, node in enumerate(graph.nodes):
        if isinstance(node, Argument) and node.is_weight:
            settle(index, readers(index))
    for index, node in enumerate(graph.nodes):
        if not (isinstance(node, Op) and node.norm):
            settle(index, (graph.values[v].producer for v in node.operands if v is not None))
    for index in reversed(range(len(homes))):  # moments, and products of these
        settle(index, readers(index))
    return [number or 0 for number in homes]


def weight_nodes(graph: Graph, home: Sequence[int]) -> frozenset[int]:
    """Return the nodes that compute gradients of weights, in chunks ``home``.

    A reader in a later chunk than a recomputed value reads the original.
    """

    def read(index: int) -> Iterator[int]:
        for value in graph.nodes[index].operands:
            made = None if value is None else graph.values[value].producer
            if made is not None and not (
                _phase(graph, made) == "recompute" and home[made] < home[index]
            ):
                yield made

    nodes = range(len(graph.nodes))
    in_backward = [_phase(graph, index) in ("backward", "recompute") for index in nodes]
    chunks = [home[index] if own else None for index, own in enumerate(in_backward)]
    return weight_gradients(chunks, [[*read(index)] for index in nodes])


def _phase(graph: Graph, index: int) -> str | None:
    """Return the phase of a node, ``None`` for a constant, an argument or a result."""
    node = graph.nodes[index]
    return node.phase if isinstance(node, Op) and not node.constant else None
