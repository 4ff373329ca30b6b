"""Replicas: unlike devices that take unequal numbers of micro-batches.

A replica is a mesh of like devices that runs the whole program on some of the micro-batches of a
training step, or of the batches of a run in inference. All replicas have the strategies and so the
graphs of one search. In training they add their gradients up before the update.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tensoropt.compiler.cost.communication import collective_time_s
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.program.graph import Argument, Graph, Node, Op, Result, Value
from tensoropt.compiler.reshard.replicas import SumOverReplicas
from tensoropt.compiler.search.frontier.points import (
    Overfull,
    ReplicaRow,
    micro_batches_of,
    recompute_of,
)
from tensoropt.compiler.search.frontier.search import FrontierPoint, FrontierResult
from tensoropt.compiler.sharding.rule.op_info import TensorInfo
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.elements import items_text
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = [
    "Replica",
    "ReplicasBound",
    "ReplicatedPoint",
    "can_replicate",
    "check_batches",
    "joins_batches",
    "least_sums_s",
    "replicated",
    "shares",
]


def can_replicate(graph: Graph, replicas: int) -> bool:
    """Return whether the step of ``graph`` has the same results on ``replicas``.

    Each needs a micro-batch. Running statistics pass from one micro-batch to the next, which
    replicas cannot do.
    """
    passes_on = any(isinstance(n, Argument) and n.state == "buffer" for n in graph.nodes)
    return graph.trains and not passes_on and graph.micro_batches >= replicas


def check_batches(graph: Graph, request: Request) -> None:
    """Raise :class:`UserError` for a program of inference that replicas cannot run in batches.

    Inputs and outputs need their samples first, of known sizes; a run joins the batches there.
    """
    name = request.interface.name_of
    batches, remedy = name("batches"), f"expected no {name('batches')}"
    if graph.trains:
        raise UserError(f"{batches} is of inference, expected micro-batches in {name('train')}")
    fewest = request.devices // math.gcd(*(group.count for group in request.groups))
    if request.batches is not None and request.batches < fewest:
        raise UserError(
            f"{batches}: expected at least one for each of {fewest} replicas of like devices, "
            f"got: {request.batches}"
        )
    if graph.has_caches:
        raise UserError(f"{batches}: replicas keep no caches of a decoder, {remedy}")
    ends = [
        (node.name, graph.values[value].info)
        for node in graph.nodes
        for value in _end_values(node)
        if value is not None
    ]
    (samples,) = graph.samples if len(graph.samples) == 1 else (None,)
    for end, info in ends:
        sizes = () if info is None else info.sizes
        if (
            info is None
            or not sizes
            or sizes[0] != samples
            or not all(isinstance(n, int) for n in sizes)
        ):
            raise UserError(
                f"{batches}: '{end}': expected {samples or 'as many'} samples first, as in all "
                "inputs and outputs, and known sizes, "
                f"got: {'x'.join(map(str, sizes)) or 'one number'}"
            )
        if not info.is_movable:
            raise UserError(
                f"{batches}: '{end}': replicas take no {items_text(info.dtype)}, {remedy}"
            )


def _end_values(node: Node) -> Sequence[int | None]:
    """Return the value of an input or an output of the program."""
    if isinstance(node, Argument):
        return node.results if node.is_fed else ()
    return node.operands if isinstance(node, Result) else ()


def joins_batches(point: FrontierPoint) -> bool:
    """Return whether a run can join the batches of ``point``: no output has padding."""
    graph, mesh = point.tables.graph, Mesh(point.mesh)
    return not any(
        layout.padded_dims(info.sizes, mesh)
        for number, node in enumerate(graph.nodes)
        if isinstance(node, Result)
        for layout, value in zip(point.strategies[number].operands, node.operands, strict=True)
        if value is not None and (info := graph.values[value].info) is not None
    )


def shares(run_s: Sequence[float], micro_batches: int) -> list[int]:
    """Return the number of micro-batches of each replica, at least 1, that ends them first.

    ``run_s`` has the time of one micro-batch on each. Giving each micro-batch in turn to the
    replica that ends it first is optimal, since all take the same time on a replica.
    """
    found = [1] * len(run_s)
    ends = [(2 * own, number) for number, own in enumerate(run_s)]
    heapq.heapify(ends)
    for _ in range(micro_batches - len(run_s)):
        end_s, number = ends[0]
        found[number] += 1
        heapq.heapreplace(ends, (end_s + run_s[number], number))
    return found


@dataclass(frozen=True)
class Replica:
    """A replica: the point on its device, and its number of micro-batches."""

    point: FrontierPoint
    micro_batches: int

    @property
    def device(self) -> Device:
        return self.point.tables.device

    @property
    def busy_s(self) -> float:
        """The time of its micro-batches."""
        return self.micro_batches * run_s(self.point)


def run_s(point: FrontierPoint) -> float:
    """Return the time of one micro-batch."""
    return (point.time_s - point.cost.update_s) / point.tables.graph.micro_batches


@dataclass(frozen=True)
class ReplicatedPoint(FrontierPoint):
    """A point of a step on ``replicas``; the sums of their gradients take ``sums_s``.

    Its base is the point on the device of the slowest replica, with the memory of every replica.
    """

    replicas: Sequence[Replica] = ()
    sums_s: float = 0.0

    @property
    def replica_rows(self) -> list[ReplicaRow]:
        """The replicas in order, as reports show them."""
        samples = self.tables.graph.samples
        (size,) = samples if len(samples) == 1 else (None,)
        return [
            ReplicaRow(
                own.device.name,
                own.micro_batches,
                None if size is None else size * own.micro_batches,
                own.busy_s,
            )
            for own in self.replicas
        ]

    @property
    def recompute(self) -> str | None:
        return recompute_of(self.replicas[0].point)

    @property
    def micro_batches(self) -> int | None:
        return micro_batches_of(self.replicas[0].point)

    @cached_property
    def time_s(self) -> float:
        """The slowest micro-batches, the sums of gradients, and the slowest update."""
        update_s = max(own.point.cost.update_s for own in self.replicas)
        return max(own.busy_s for own in self.replicas) + self.sums_s + update_s

    @property
    def compute_s(self) -> float:
        """The computation of the slowest replica, in proportion to its time."""
        return self.cost.compute_s * self._share

    @property
    def communication_s(self) -> float:
        return self.cost.communication_s * self._share + self.sums_s

    @property
    def _share(self) -> float:
        return (self.time_s - self.sums_s) / self.cost.time_s

    @property
    def overfull(self) -> Overfull | None:
        """The process that is furthest above the memory of its device, if any is."""
        return Overfull.most(own.point.overfull for own in self.replicas)


def replicated(
    points: Sequence[FrontierPoint], micro_batches: int, between: Device
) -> ReplicatedPoint:
    """Return the program on replicas; ``points`` are one choice of strategies on each device.

    ``between`` is a device with the links between groups.
    """
    counts = shares([*map(run_s, points)], micro_batches)
    replicas = [Replica(point, count) for point, count in zip(points, counts, strict=True)]
    slowest = max(replicas, key=lambda own: own.busy_s).point
    sums_s = _sums_s(slowest, len(points), between)
    return ReplicatedPoint(**slowest.given, replicas=replicas, sums_s=sums_s)


def _sums_s(point: FrontierPoint, replicas: int, between: Device) -> float:
    """Return the time to add up each gradient over the replicas; fusing some may save latency."""
    sums = SumOverReplicas(replicas, point.tables.resharder, between)
    graph = point.tables.graph
    return sum(
        sums.time_s(info, _read_by_update(point, value)) for value, info in _gradients(graph)
    )


def _gradients(graph: Graph) -> Iterator[tuple[Value, TensorInfo]]:
    """Yield each gradient that stays until the update."""
    for node in graph.nodes:
        if isinstance(node, Op) and node.held:
            value = graph.values[node.results[0]]
            assert value.info is not None, "gradients are ranked tensors"
            yield value, value.info


def _read_by_update(point: FrontierPoint, value: Value) -> Layout:
    """Return the layout in which the update reads a gradient."""
    graph = point.tables.graph
    reader, operand = next((n, o) for n, o in value.uses if graph.updates(graph.nodes[n]))
    return point.strategies[reader].operands[operand]


def least_sums_s(graph: Graph, ranks: int, replicas: int, between: Device) -> float:
    """Return the least time to add up the gradients over ``replicas`` of ``ranks`` each.

    In any layout, some rank has at least its equal part of each gradient.
    """
    mesh = Mesh((replicas,))
    return sum(
        collective_time_s("all_reduce", info.memory_bytes / ranks, (0,), mesh, between)
        for _, info in _gradients(graph)
    )


@dataclass(frozen=True)
class ReplicasBound:
    """All programs of one size and number of replicas: the searches of a replica on each device.

    ``counts`` has the number of replicas on each. A search is about ``searched`` micro-batches and
    the update. No replica runs these in less than the bound of the search, and some of them in less
    than their part of it. Then the sums of gradients take at least ``sums_s``. Most of the update
    is left out.
    """

    found: Sequence[FrontierResult]
    counts: Sequence[int]
    micro_batches: int
    searched: int
    sums_s: float = 0.0

    @property
    def least_s(self) -> float:
        return 0.0

    def best_s(self) -> float:
        """Return a lower bound on the time."""
        least = [_least_s(own) / self.searched for own in self.found]
        times = [s for s, count in zip(least, self.counts, strict=True) for _ in range(count)]
        pairs = zip(shares(times, self.micro_batches), times, strict=True)
        return max(count * own for count, own in pairs) + self.sums_s


def _least_s(found: FrontierResult) -> float:
    if found.time_epsilon is None or not found.points:
        return 0.0
    return found.points[0].time_s / (1 + found.time_epsilon)
