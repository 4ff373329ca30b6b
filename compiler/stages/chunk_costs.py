"""Costs of the chunks of a training step under one choice of strategies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.program.costs import tensor_bytes
from tensoropt.compiler.program.evaluate import evaluator_of
from tensoropt.compiler.program.graph import Graph, Op, Result
from tensoropt.compiler.program.timeline import node_times_of
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.stages.order import Floats, Ints, order_of
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["Costs", "NodeTimes", "StepCosts"]


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


class NodeTimes:
    """The times and the bytes of the nodes of a searched step, which all cuts of it share.

    ``run_s`` is the time of each node for one micro-batch, with the reshards of its operands, and
    ``once_s`` its time if a step runs it once. ``bytes`` has the size of each value that is made
    at run time. Linear in the operands of the program.
    """

    def __init__(self, point: FrontierPoint) -> None:
        self.order = order_of(point.tables.graph)
        graph, order = point.tables.graph, self.order
        cost, times_s, kept = node_times_of(evaluator_of(point.tables), point.assignment)
        step_s = np.array(times_s)
        self.once_s: Floats = np.where(order.runs_once, step_s, 0.0)
        self.run_s: Floats = np.where(order.runs_once, 0.0, step_s / order.times)
        self.bytes = _value_bytes(point)
        self.static = [(_keepers(graph, own.value), own.bytes) for own in kept]
        self.transient_bytes = cost.transient_bytes
        self._point = point

    @cached_property
    def place_s(self) -> tuple[Floats, Floats]:
        """The time of each place of the forward pass for one micro-batch: forward, and in all."""
        return self.order.place_sums(self.run_s)

    @cached_property
    def place_bytes(self) -> tuple[Floats, Floats]:
        """The bytes of each place: static, and kept from a forward to its backward pass."""
        order, count = self.order, len(self.order.forward)
        nodes = [keepers[0] for keepers, _ in self.static]
        sizes = [size for _, size in self.static]
        static = _sums(order.homes[np.array(nodes, int)], np.array(sizes, float), count)
        kept = np.where(order.is_kept, self.bytes, 0)
        return static, _sums(order.homes[order.made], kept, count)

    def stream_bytes(self, cuts: Sequence[int]) -> list[int]:
        """Return the bytes of temporary tensors of each stage of inference.

        These are counted whole, but of caches that grow a stage has only its own.
        """
        if not self._grown:
            return [self.transient_bytes] * (len(cuts) + 1)
        homes = self.order.home_chunks(cuts)[self.order.made[self._grown]]
        own = np.bincount(homes, self.bytes[self._grown], len(cuts) + 1)
        return [self._without_grown + int(size) for size in own]

    @cached_property
    def _grown(self) -> list[int]:
        """The new caches that are not written in place of the old ones."""
        results = (node for node in self.order.graph.nodes if isinstance(node, Result))
        grown = (n for n in results if n.takes_over is not None and n.updates is None)
        return [value for node in grown for value in node.operands if value is not None]

    @cached_property
    def _without_grown(self) -> int:
        """The most bytes of the other temporary tensors of all layers."""
        record = evaluator_of(self._point.tables).record(self._point.assignment)
        return int(record.alive_bytes(self._grown).max())

    @cached_property
    def passing_bytes(self) -> Ints:
        """The bytes on one rank that pass each place of the forward pass."""
        made, last = self.order.homes[self.order.made], self.order.last_places
        inside = self.order.runs_forward[self.order.made] & (last >= 0)
        count = len(self.order.forward) + 1
        begin = np.bincount(made[inside] + 1, self.bytes[inside], count)
        end = np.bincount(last[inside] + 1, self.bytes[inside], count)
        return np.cumsum(begin - end).astype(np.int64)

    def step(self, cuts: Sequence[int]) -> StepCosts:
        """Return the costs of the chunks that begin at the start and at each place of ``cuts``."""
        order, homes, count = self.order, self.order.home_chunks(cuts), len(cuts) + 1

        def add(values: npt.NDArray[np.generic], mask: npt.NDArray[np.bool_], at: Ints) -> Floats:
            return _sums(at, np.where(mask, values, 0), count)

        weights = np.zeros(len(homes), bool)
        weights[list(order.weight_nodes(cuts))] = True
        values, readers = order.reads
        read = np.zeros(len(self.bytes), bool)
        read[values[weights[readers]]] = True
        at, forward = homes[order.made], order.in_forward
        last = np.searchsorted(np.array(cuts), order.last_places, side="right")
        sent = order.runs_forward[order.made] & (last > at)
        begun, ended = (np.bincount(where, sent * self.bytes, count) for where in (at, last))
        static = np.zeros(count)
        for keepers, size in self.static:
            static[[*{homes[node] for node in keepers}]] += size
        kept = add(self.bytes, order.is_kept, at)
        times = (
            add(self.run_s, forward, homes),
            add(self.run_s, ~forward & ~weights, homes),
            add(self.run_s, ~forward & weights, homes),
            np.bincount(homes, self.once_s, count),
        )
        sizes = (
            static,
            kept,
            add(self.bytes, read & ~weights[order.made], at),
            np.cumsum(begun - ended),
        )
        rows = zip(*(own.tolist() for own in times), *(own.tolist() for own in sizes), strict=True)
        chunks = tuple(Costs(*row[:4], *map(int, row[4:])) for row in rows)
        return StepCosts(chunks, max(self.transient_bytes - int(kept.sum()), 0))


def _keepers(graph: Graph, value: int) -> list[int]:
    """Return the nodes with chunks that keep a static value: readers of a weight, else its maker.

    A tied embedding is on the first and on the last stage.
    """
    own = graph.values[value]
    read = [node for node, _ in own.uses if value in graph.storage.constants]
    return [node for node in read if not graph.nodes[node].constant] or [own.producer]


def _sums(at: Ints, values: npt.NDArray[np.generic], count: int) -> Floats:
    """Return the sum of the values at each of ``count`` numbers."""
    found: Floats = np.bincount(at, values, count)  # type: ignore[assignment]
    return found


def _value_bytes(point: FrontierPoint) -> Ints:
    """Return the bytes of each value on one rank, 0 for arguments and constants."""
    graph, mesh = point.tables.graph, Mesh(point.mesh)
    found, known = np.zeros(len(graph.values), np.int64), dict[tuple[int, int, int], int]()
    for number, value in enumerate(graph.values):
        maker = graph.nodes[value.producer]
        if not isinstance(maker, Op) or maker.constant or number in graph.storage.constants:
            continue
        strategy = point.strategies[value.producer]
        key = id(value.info), id(strategy), value.index
        if key not in known:
            known[key] = tensor_bytes(value.info, strategy.results[value.index], mesh)
        found[number] = known[key]
    return found
