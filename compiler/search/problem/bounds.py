"""Lower bound on the memory of a plan, from the sizes of its tensors alone."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tensoropt.compiler.layout.sizes import end_of, ever_pads
from tensoropt.compiler.program.graph import Graph, Node, Op
from tensoropt.compiler.sharding.rule.op_info import TensorInfo

__all__ = ["least_bytes"]


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
