"""Lower bound on the memory of a plan, from the sizes of its tensors alone."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tensoropt.compiler.layout.sizes import end_of, ever_pads
from tensoropt.compiler.program.graph import Argument, Graph, Node, Op
from tensoropt.compiler.sharding.rule.op_info import TensorInfo

__all__ = ["least_bytes", "least_state_bytes"]


def least_bytes(graph: Graph, devices: int) -> int:
    """Return a lower bound of the memory of one device, over all meshes of ``devices``.

    A layout splits a tensor into at most as many parts as there are devices; without padding, into
    a number that divides both its elements and the devices. The bound adds static memory to the
    largest set of tensors that one op reads and writes. Linear in the operands of the graph.
    """

    def size(infos: Iterable[TensorInfo | None]) -> int:
        return sum(_part_bytes(info, devices) for info in infos if info is not None)

    kept = sum(size(_list_static(graph, node)) for node in graph.nodes)
    return kept + max((size(_used(graph, node)) for node in graph.nodes), default=0)


def least_state_bytes(graph: Graph, devices: int) -> int:
    """Return a lower bound of the parameters and states of one device, for all kinds of plans.

    Some device has at least its part of all that must be somewhere, in stages too, and with any
    recomputation and number of micro-batches. Linear in the operands of the graph.
    """
    private = (info for node in graph.nodes for _, info in graph.private_operands(node))
    states = (
        graph.values[value].info
        for node in graph.nodes
        if isinstance(node, Argument) and not node.is_fed
        for value in node.results
        if value in graph.storage.static
    )
    return sum(info.memory_bytes for info in (*private, *states) if info is not None) // devices


def _part_bytes(info: TensorInfo, devices: int) -> int:
    if any(map(ever_pads, info.sizes)):
        return info.memory_bytes // devices
    return info.memory_bytes // math.gcd(end_of(info.sizes), devices)


def _list_static(graph: Graph, node: Node) -> Iterable[TensorInfo | None]:
    """Yield the private parameters of a node, and its results that stay for the whole run."""
    for _, info in graph.private_operands(node):
        yield info
    yield from (graph.values[v].info for v in node.results if v in graph.storage.static)


def _used(graph: Graph, node: Node) -> Iterable[TensorInfo | None]:
    """Yield the transient tensors that a node reads and writes."""
    if node.constant or not isinstance(node, Op):
        return
    touched = {v for v in (*node.operands, *node.results) if v is not None}
    for value in touched:
        if value not in graph.storage.staying and value not in graph.storage.replacing:
            yield graph.values[value].info
