"""Costs of the chunks of a training step under one choice of strategies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.program.costs import tensor_bytes
from tensoropt.compiler.program.evaluate import Record, evaluator_of
from tensoropt.compiler.program.graph import Graph, Result
from tensoropt.compiler.program.timeline import node_times_of
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.stages.branches import Branch, branches_of, sent_bytes
from tensoropt.compiler.stages.order import Flags, Floats, Ints, order_of
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["Costs", "NodeTimes"]


@dataclass
class Costs:
    """Costs of a chunk on one rank, for one micro-batch unless it says otherwise.

    ``backward_s`` is the time of the gradients of activations and of recomputation, ``weights_s``
    the time of the gradients of weights. ``once_s`` is spent once per step: gradients are reduced,
    parameters updated. All tasks of a step hide ``hidden_s`` of their communication, which these
    times are without. ``static_bytes`` are parameters, gradients and moments. ``kept_bytes`` stay
    from the forward to the backward pass, also those that an earlier chunk sent. ``weights_bytes``
    are the activations and gradients that the gradients of weights read. ``working_bytes`` are the
    other temporary tensors of a pass, ``gradient_bytes`` the largest gradient of a weight.
    ``sent_bytes`` pass to the next chunk, or to another one that reads from it, the most to one.
    """

    forward_s: float = 0.0
    backward_s: float = 0.0
    weights_s: float = 0.0
    once_s: float = 0.0
    hidden_s: float = 0.0
    static_bytes: int = 0
    kept_bytes: int = 0
    weights_bytes: int = 0
    working_bytes: int = 0
    gradient_bytes: int = 0
    sent_bytes: int = 0


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
        self._branches: dict[int, list[Branch]] = {}

    @cached_property
    def place_s(self) -> tuple[Floats, Floats]:
        """The time of each place of the forward pass for one micro-batch: forward, and in all."""
        return self.order.place_sums(self.run_s)

    @cached_property
    def place_bytes(self) -> tuple[Floats, Floats]:
        """The bytes of each place: static, and kept from a forward to its backward pass.

        A value is kept until the backward pass reaches its reader at the first place.
        """
        order, count = self.order, len(self.order.forward)
        nodes = [keepers[0] for keepers, _ in self.static]
        sizes = [size for _, size in self.static]
        static = _sums(order.homes[np.array(nodes, int)], np.array(sizes, float), count)
        values, readers = order.reads
        late = order.runs_late[readers] & order.runs_forward[order.made[values]]
        last = np.full(len(self.bytes), count)
        np.minimum.at(last, values[late], order.homes[readers[late]])
        is_kept = last < count
        return static, _sums(last[is_kept], self.kept_bytes[is_kept], count)

    @cached_property
    def _record(self) -> Record:
        # Windows of the whole step would keep values from one chunk to another.
        return evaluator_of(self._point.tables).record(self._point.assignment, overlaps=False)

    @cached_property
    def _events(self) -> tuple[Ints, Ints]:
        """The node and the moment of each event; constants are made early, for all chunks."""
        nodes = np.array(self._point.tables.variables)[self._record.events[:, 0]]
        moments = np.array([*map(self._record.place, self._record.events[:, 4].tolist())])
        made = np.array([not node.constant for node in self.order.graph.nodes])[nodes]
        return nodes[made], moments[made]

    @cached_property
    def kept_bytes(self) -> Ints:
        """The bytes of each value in the layouts that are live after the forward pass."""
        nodes, moments = self._events
        end = moments[self.order.runs_forward[nodes]].max(initial=0)
        lives = self._record.lives
        own = lives[(lives[:, 0] >= 0) & (lives[:, 2] <= end) & (lives[:, 3] > end)]
        return _sums(own[:, 0], own[:, 4], len(self.bytes)).astype(np.int64)

    @cached_property
    def _peak_bytes(self) -> Ints:
        """The most live bytes of temporary tensors while the nodes of each place run."""
        nodes, moments = self._events
        found = np.zeros(len(self.order.forward), np.int64)
        np.maximum.at(found, self.order.homes[nodes], self._record.alive_bytes()[moments])
        return found

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
        return int(self._record.alive_bytes(self._grown).max())

    @cached_property
    def passing_bytes(self) -> Ints:
        """The bytes on one rank that pass each place of the forward pass."""
        return self.order.passing(self.bytes)

    def branches(self, chunks: int) -> list[Branch]:
        """Return the parallel branches that can be chunks of their own, if there are ``chunks``."""
        if chunks not in self._branches:
            own = branches_of(self.order, self.place_s[1], self.passing_bytes, chunks)
            self._branches[chunks] = own
        return self._branches[chunks]

    def step(
        self, cuts: Sequence[int], begins: Sequence[int] = (), *, splits: bool = False
    ) -> tuple[Costs, ...]:
        """Return the costs of the chunks that begin at the start and at each place of ``cuts``.

        They are a chain, except at the places ``begins`` of branches. ``splits``: gradients of
        weights are tasks of their own.
        """
        order, homes, count = self.order, self.order.home_chunks(cuts), len(cuts) + 1
        weights = np.zeros(len(homes), bool)
        weights[list(order.weight_nodes(cuts))] = True
        forward = order.in_forward

        def time_s(mask: npt.NDArray[np.bool_]) -> Floats:
            return _sums(homes, np.where(mask, self.run_s, 0), count)

        made_early = order.runs_forward[order.made]
        sizes = np.where(self.kept_bytes > 0, self.kept_bytes, self.bytes)
        values, readers = order.reads
        # A reader in a later chunk than a recomputed value reads the original.
        is_later = homes[readers] > homes[order.made[values]]
        values = np.where(is_later, order.originals[values], values)

        def read_bytes(mask: npt.NDArray[np.bool_]) -> Ints:
            """Return the bytes of the values that each chunk reads after the forward pass."""
            pairs = np.unique(values[mask] * count + homes[readers[mask]])
            return _sums(pairs % count, sizes[pairs // count], count).astype(np.int64)

        static = np.zeros(count, np.int64)
        for keepers, size in self.static:
            static[[*{homes[node] for node in keepers}]] += size
        at, by_weights = homes[order.made], weights[order.made]
        gradients = np.zeros(count, np.int64)
        np.maximum.at(gradients, at[by_weights], self.bytes[by_weights])
        hidden_s, raised = self._hidden(homes, weights & splits, count)
        backward_s = time_s(~forward & ~weights) - hidden_s[1]
        columns = (
            time_s(forward) - hidden_s[0],
            np.maximum(backward_s, 0.0),
            time_s(~forward & weights) - hidden_s[2] + np.minimum(backward_s, 0.0),
            np.bincount(homes, self.once_s, count) - hidden_s[3],
            self.order.graph.micro_batches * hidden_s[:3].sum(axis=0) + hidden_s[3],
            static,
            read_bytes(made_early[values] & order.runs_late[readers]),
            read_bytes(weights[readers] & ~by_weights[values]),
            self._working_bytes(cuts) + raised[:3].max(axis=0),
            gradients,
            sent_bytes(order, self.bytes, cuts, begins),
        )
        return tuple(Costs(*row) for row in zip(*(own.tolist() for own in columns), strict=True))

    def _hidden(self, homes: Ints, weights: Flags, count: int) -> tuple[Floats, Ints]:
        """Return the seconds that the graphs of each chunk hide in one run, a row for each kind.

        With them are the bytes by which that raises their peaks. The kinds are forward passes,
        backward passes, gradients of ``weights`` and updates.
        """
        order = self.order
        number = np.where(order.in_forward, homes, 2 * count - 1 - homes)
        number = np.where(weights, 2 * count + homes, number)
        number = np.where(order.runs_once, 3 * count + homes, number)
        owner = evaluator_of(self._point.tables)
        rows = zip(*owner.hidden(self._point.assignment, number, 4 * count), strict=True)
        seconds, raised = (np.array(row).reshape(4, count) for row in rows)
        for found in (seconds, raised):
            found[1] = found[1][::-1]  # backward passes run from the last chunk to the first
        return seconds, raised

    def _working_bytes(self, cuts: Sequence[int]) -> Ints:
        """Return the bytes of temporary tensors of each chunk that no other pass reads.

        While a chunk runs in a step without stages, the activations of earlier chunks are live.
        """
        kept = np.cumsum(self.place_bytes[1])
        ends = np.array([*cuts, len(self.order.forward)])
        peaks = np.maximum.reduceat(self._peak_bytes, [0, *cuts])
        found: Ints = np.maximum(peaks - kept[ends - 1].astype(np.int64), 0)
        return found


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
    for number in order_of(graph).made_values:
        value = graph.values[number]
        strategy = point.strategies[value.producer]
        key = id(value.info), id(strategy), value.index
        if key not in known:
            known[key] = tensor_bytes(value.info, strategy.results[value.index], mesh)
        found[number] = known[key]
    return found
