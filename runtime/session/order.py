"""Execution of a plan's graph in the plan's order by ONNX Runtime.

ONNX Runtime runs nodes depth first from the outputs by default, or optionally in file order. But it
appends fused nodes after all other nodes, so that they run late. We therefore run its optimizer
first, restore the plan's order in the result, and open the session without further optimization.
"""

from __future__ import annotations

import ctypes
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tensoropt.runtime.device.provider import HostArray
from tensoropt.runtime.session.wire import Node, nodes_of, with_nodes
from tensoropt.runtime.support.dtypes import dtype_of_code
from tensoropt.runtime.support.ordering import ORDERED

if TYPE_CHECKING:
    from onnxruntime import OrtExternalInitializerInfo, OrtValue, SessionOptions

__all__ = ["Optimised", "is_ordered", "optimise_in_order", "restore_order", "sort_nodes"]

_LEAST = 1024
"""Bytes from which a constant is passed to a session separately, and not in the graph."""
_TEXT = 8  # the number of ONNX's strings
_MADE_OF = ("_nchwc", "_token_", "/")
"""Separators after which ONNX Runtime extends the name of a node or result to name a new node."""


@dataclass(frozen=True)
class Optimised:
    """A graph that ONNX Runtime optimized, and the large constants that it created, by name.

    The graph refers to them as external data.
    """

    model: bytes
    constants: Mapping[str, HostArray]


def is_ordered(graph: Path) -> bool:
    """Return True if a plan's graph must run in its order, because others need more memory."""
    return ORDERED.encode() in graph.read_bytes()  # importing onnx would take 6 MiB


def optimise_in_order(given: Path | bytes, options: SessionOptions) -> Optimised:
    """Optimize a graph with ONNX Runtime, and restore the order of its nodes.

    Weights that it does not change stay in their files. ``options`` have everything that a session
    of the graph needs. Raises the errors of ONNX Runtime.
    """
    from onnxruntime import GraphOptimizationLevel, ModelCompiler, OrtExternalInitializerInfo

    constants: dict[str, HostArray] = {}

    def location(
        name: str, value: OrtValue, info: OrtExternalInitializerInfo | None
    ) -> OrtExternalInitializerInfo | None:
        size = value.tensor_size_in_bytes()
        if info is not None or size < _LEAST or value.element_type() == _TEXT:
            return info
        array = np.empty(tuple(value.shape()), dtype_of_code(value.element_type()))
        ctypes.memmove(array.ctypes.data, value.data_ptr(), array.nbytes)
        constants[name] = HostArray(array)
        return OrtExternalInitializerInfo(name, 0, size)

    compiler = ModelCompiler(
        options,
        given if isinstance(given, bytes) else str(given),
        embed_compiled_data_into_model=True,
        graph_optimization_level=GraphOptimizationLevel.ORT_ENABLE_ALL,
        get_initializer_location_func=location,
    )
    made = compiler.compile_to_bytes()
    before = given if isinstance(given, bytes) else given.read_bytes()
    nodes = restore_order(nodes_of(made), nodes_of(before))
    return Optimised(with_nodes(made, nodes), constants)


def restore_order(nodes: Sequence[Node], given: Sequence[Node]) -> list[Node]:
    """Return the optimized ``nodes`` in the order of the ``given`` nodes, from which they derive.

    A fused node takes the position of the last node that it replaces, which its results or its name
    identify. A new node, such as a change of layout, goes before its first reader, as does a node
    that merges equal nodes. Linear, except for the sorting.
    """
    needs = _needs([node.reads for node in nodes], [node.makes for node in nodes])
    readers = _readers(needs)
    places = {node.name: place for place, node in enumerate(given) if node.name}
    places |= {name: place for place, node in enumerate(given) for name in node.makes}
    wanted = _wanted(nodes, readers, places)
    return [nodes[place] for place in _sort(needs, readers, wanted)]


def sort_nodes(
    reads: Sequence[Iterable[str]], makes: Sequence[Iterable[str]], wanted: Sequence[int]
) -> list[int]:
    """Return the indices of nodes in topological order, and otherwise by ``wanted`` position.

    ``reads`` and ``makes`` are the names of each node's operands and results.
    """
    needs = _needs(reads, makes)
    return list(_sort(needs, _readers(needs), wanted))


def _needs(reads: Sequence[Iterable[str]], makes: Sequence[Iterable[str]]) -> list[set[int]]:
    makers = {name: place for place, made in enumerate(makes) for name in made if name}
    return [
        {makers[name] for name in names if name in makers} - {place}
        for place, names in enumerate(reads)
    ]


def _readers(needs: Sequence[set[int]]) -> list[list[int]]:
    readers: list[list[int]] = [[] for _ in needs]
    for place, needed in enumerate(needs):
        for maker in needed:
            readers[maker].append(place)
    return readers


def _wanted(
    nodes: Sequence[Node], readers: Sequence[Sequence[int]], places: Mapping[str, int]
) -> list[int]:
    """Return each node's position among the given nodes; ``nodes`` are sorted topologically."""
    wanted = [len(places)] * len(nodes)
    for place in reversed(range(len(nodes))):
        node = nodes[place]
        made_of = [places[name] for name in node.makes if name in places]
        if not made_of:
            origin = _find_origin(node.name, places)
            made_of = [] if origin is None else [origin]
        first = min((wanted[reader] for reader in readers[place]), default=len(places))
        wanted[place] = min(max(made_of, default=first), first)
    return wanted


def _find_origin(name: str, places: Mapping[str, int]) -> int | None:
    """Return the position of the given node with a name that is a prefix of ``name``, or None."""
    while name:
        if name in places:
            return places[name]
        name = name[: max(0, *(name.rfind(mark) for mark in _MADE_OF))]
    return None


def _sort(
    needs: Sequence[set[int]], readers: Sequence[Sequence[int]], wanted: Sequence[int]
) -> Iterator[int]:
    """Yield the nodes in topological order, and otherwise by their wanted position."""
    missing = [len(needed) for needed in needs]
    ready = [(wanted[place], place) for place, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    while ready:
        _, place = heapq.heappop(ready)
        yield place
        for reader in readers[place]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (wanted[reader], reader))
