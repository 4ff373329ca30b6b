"""Systems that ran published steps, and their effect on the times of operators.

Our plans give the times of a step. A `System` changes them to the system that ran the step: its
kernels, its memory for each parameter, and communication that it hides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import numpy as np
from accuracy.gpu_plans import separate_attention

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.program.evaluate import evaluator_of
from tensoropt.compiler.program.graph import Graph, Op
from tensoropt.compiler.program.timeline import timeline_of
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.stages.chunk_costs import NodeTimes
from tensoropt.compiler.stages.order import Floats
from tensoropt.dialects.onnx import ATTENTIONS

__all__ = ["PYTORCH_BYTES", "System", "times_of"]

PYTORCH_BYTES = 7_500_000_000
"""Memory of a process of PyTorch on a large GPU that is not of tensors: contexts, buffers of NCCL,
and memory between the blocks of its allocator. Fitted to the runs of `clusters.py`."""
_PRODUCTS = frozenset(("MatMul", "Einsum", "Gemm")) | ATTENTIONS


@dataclass(frozen=True, kw_only=True)
class System:
    """Properties of the system that ran a step.

    ``attention`` has separate operators, or one kernel that keeps no scores. The system ``fuses``
    element-wise operators that follow each other. Products and attention reach ``product_rate`` of
    their rate in our tables; on top of that, attention has ``attention_rate``, and products of
    layers ``layer_rate``. The products of a layer with one of the names ``repeats`` are computed
    again in the backward pass, and not kept. It ``splits_sequence`` between layers, or has the
    whole activations on each rank. A parameter has ``parameter_bytes``, gradients of
    ``gradient_bytes``, and ``optimizer_bytes`` of moments and of a copy in float32, which replicas
    share if it ``shards_moments``. If it ``shards_parameters`` (FSDP), replicas share gradients,
    too, and gather the parameters of a layer for each pass.

    It hides a share ``hides_collectives`` of the collectives between the ranks of a layer, except
    for their first part, and ``hides_exchange`` of gradients and of new parameters while stages
    compute. A stage that ``waits_for_sends`` computes nothing while it sends or receives. A step
    has ``step_s`` in addition, and a process ``rest_bytes``. The loss has ``more_scores`` tensors
    of scores in float32 more than ours.
    """

    attention: Literal["operators", "kernel"]
    fuses: bool
    precision: str
    recompute: str
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    product_rate: float = 1.0
    attention_rate: float = 1.0
    layer_rate: float = 1.0
    repeats: tuple[str, ...] = ()
    splits_sequence: bool = False
    shards_moments: bool = False
    shards_parameters: bool = False
    hides_collectives: float = 0.0
    hides_exchange: bool = False
    waits_for_sends: bool = False
    step_s: float = 0.0
    rest_bytes: int = 0
    more_scores: int = 0

    @property
    def planned(self) -> System:
        """The system with only the properties that change its plans; the others change times."""
        return System(
            attention=self.attention, precision=self.precision, recompute=self.recompute,
            splits_sequence=self.splits_sequence, fuses=False,
            parameter_bytes=0, gradient_bytes=0, optimizer_bytes=0,
        )  # fmt: skip

    def attention_kept(self) -> AbstractContextManager[object]:
        """Return a context in which graphs have the attention of the system."""
        return nullcontext() if self.attention == "kernel" else separate_attention()


def times_of(point: FrontierPoint, system: System, device: Device) -> NodeTimes:
    """Return the times of the nodes of a planned step, as the system runs them."""
    times = NodeTimes(point)
    graph, ranks = point.tables.graph, int(np.prod(point.mesh))
    op_s, sent_s = np.zeros(len(graph.nodes)), np.zeros(len(graph.nodes))
    for step in timeline_of(evaluator_of(point.tables), point.assignment).steps:
        if step.node is not None and step.kind in ("op", "collective"):
            own = op_s if step.kind == "op" else sent_s
            own[step.node] += step.time_s / times.order.times[step.node]
    hidden = system.hides_collectives * (1 - 1 / ranks)
    times.run_s -= hidden * np.where(times.order.runs_once, 0.0, sent_s)
    times.run_s += op_s * _longer(graph, system)
    repeated = [index for index, node in enumerate(graph.nodes) if _repeats(system, node)]
    times.run_s[repeated] += op_s[repeated] / (system.product_rate * system.layer_rate)
    if system.fuses:
        for group in _chains(graph):
            _fuse(times, graph, op_s, group, device)
    for index in repeated:
        for sizes in (times.kept_bytes, times.bytes):
            sizes[list(graph.nodes[index].results)] = 0
    return times


def _longer(graph: Graph, system: System) -> Floats:
    """Return the share of its time in our tables that each node takes longer."""
    rates = np.ones(len(graph.nodes))
    for index, node in enumerate(graph.nodes):
        if not isinstance(node, Op) or node.info.name not in _PRODUCTS:
            continue
        rates[index] = system.product_rate
        if node.info.name in ATTENTIONS:
            rates[index] *= system.attention_rate
        elif node.name.startswith("layer"):
            rates[index] *= system.layer_rate
    return 1 / rates - 1


def _repeats(system: System, node: object) -> bool:
    """Return whether a node is a product that the backward pass computes again."""
    return (
        isinstance(node, Op)
        and node.phase == "forward"
        and node.info.name in _PRODUCTS
        and any(name in node.name for name in system.repeats)
    )


def _chains(graph: Graph) -> Iterable[list[int]]:
    """Return the groups of element-wise operators of layers that read each other's results."""
    found: dict[int, int] = {}

    def root(index: int) -> int:
        while found[index] != index:
            index = found[index]
        return index

    for index, node in enumerate(graph.nodes):
        if not _can_fuse(node):
            continue
        found[index] = index
        for value in node.operands:
            made = None if value is None else graph.values[value].producer
            if made in found and graph.op(made).phase == graph.op(index).phase:
                found[root(index)] = root(made)
    groups = defaultdict(list)
    for index in found:
        groups[root(index)].append(index)
    return groups.values()


def _can_fuse(node: object) -> bool:
    return (
        isinstance(node, Op)
        and not node.constant
        and node.phase in ("forward", "recompute", "backward")
        and node.info.name not in _PRODUCTS
        and node.name.startswith("layer")
    )


def _fuse(times: NodeTimes, graph: Graph, op_s: Floats, group: list[int], device: Device) -> None:
    """Let operators read their common operands and write their results once, as one kernel."""
    inside = {*group}
    moved = {*_operands(graph, group), *_results(graph, inside)}
    moved_bytes = sum(int(times.bytes[value]) for value in moved)
    fused_s = moved_bytes / device.memory_bandwidth_bytes_per_s + device.launch_overhead_s
    before_s = sum(min(times.run_s[index], op_s[index]) for index in group)
    for index in group:
        times.run_s[index] -= min(times.run_s[index], op_s[index])
    times.run_s[group[0]] += min(fused_s, before_s)


def _operands(graph: Graph, group: list[int]) -> Iterator[int]:
    """Yield the values that operators of a group read from others."""
    for index in group:
        for value in graph.nodes[index].operands:
            if value is not None and graph.values[value].producer not in group:
                yield value


def _results(graph: Graph, group: set[int]) -> Iterator[int]:
    """Yield the values of a group that others read."""
    for index in group:
        for value in graph.nodes[index].results:
            if any(reader not in group for reader, _ in graph.values[value].uses):
                yield value
