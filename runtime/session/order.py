"""The order of a plan's graph, kept by ONNX Runtime.

It runs nodes in an order of its own, depth first from the outputs, or in that of the file if it is
told to. But what it fuses is put behind all other nodes, and so runs late. So its optimiser runs
first, its result is put in the order of the plan, and the session is made of that as it is.
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

__all__ = ["Optimised", "in_order", "is_ordered", "optimised_in_order", "ordered"]

_LEAST = 1024
"""Bytes of a constant that is given to a session beside the graph, and not in it."""
_TEXT = 8  # the number of ONNX's strings
_MADE_OF = ("_nchwc", "_token_", "/")
"""What ONNX Runtime puts behind the name of a node or of its result, to name what it makes."""


@dataclass(frozen=True)
class Optimised:
    """A graph as ONNX Runtime optimised it, and the large constants that it made for it, by name.

    In the graph these look as if they lay in a file.
    """

    model: bytes
    constants: Mapping[str, HostArray]


def is_ordered(graph: Path) -> bool:
    """Say whether a graph of a plan is to run in its order: another one takes more memory."""
    return ORDERED.encode() in graph.read_bytes()  # the package onnx would take 6 MiB to say so


def optimised_in_order(given: Path | bytes, options: SessionOptions) -> Optimised:
    """Return what ONNX Runtime makes of a graph, with its nodes in the order in which it has them.

    Weights that it leaves as they are stay in their files. ``options`` have what a session of the
    graph needs. Raises what ONNX Runtime raises.
    """
    from onnxruntime import GraphOptimizationLevel, ModelCompiler, OrtExternalInitializerInfo

    constants: dict[str, HostArray] = {}

    def lies(
        name: str, value: OrtValue, info: OrtExternalInitializerInfo | None
    ) -> OrtExternalInitializerInfo | None:
        size = value.tensor_size_in_bytes()
        if info is not None or size < _LEAST or value.element_type() == _TEXT:
            return info
        constants[name] = _copy(value)
        return OrtExternalInitializerInfo(name, 0, size)

    compiler = ModelCompiler(
        options,
        given if isinstance(given, bytes) else str(given),
        embed_compiled_data_into_model=True,
        graph_optimization_level=GraphOptimizationLevel.ORT_ENABLE_ALL,
        get_initializer_location_func=lies,
    )
    made = compiler.compile_to_bytes()
    before = given if isinstance(given, bytes) else given.read_bytes()
    nodes = ordered(nodes_of(made), nodes_of(before))
    return Optimised(with_nodes(made, nodes), constants)


def _copy(value: OrtValue) -> HostArray:
    array = np.empty(tuple(value.shape()), dtype_of_code(value.element_type()))
    ctypes.memmove(array.ctypes.data, value.data_ptr(), array.nbytes)
    return HostArray(array)


def ordered(nodes: Sequence[Node], given: Sequence[Node]) -> list[Node]:
    """Return ``nodes``, made of those ``given``, in the order of these.

    A fused node stands where the last that it is made of stood, which its results or its name tell.
    One that is new, such as a change of layout, stands before the first that reads it, as does one
    that equal nodes became. Linear, but for the sorting.
    """
    needs = _needs([node.reads for node in nodes], [node.makes for node in nodes])
    readers = _readers(needs)
    wanted = _wanted(nodes, readers, _places(given))
    return [nodes[place] for place in _sorted(needs, readers, wanted)]


def in_order(
    reads: Sequence[Iterable[str]], makes: Sequence[Iterable[str]], wanted: Sequence[int]
) -> list[int]:
    """Return the numbers of nodes, each behind those that it needs, and else as is ``wanted``.

    A node ``reads`` and ``makes`` tensors of these names, and belongs to the place wanted.
    """
    needs = _needs(reads, makes)
    return list(_sorted(needs, _readers(needs), wanted))


def _needs(reads: Sequence[Iterable[str]], makes: Sequence[Iterable[str]]) -> list[set[int]]:
    makers = {name: place for place, made in enumerate(makes) for name in made if name}
    return [
        {makers[name] for name in names if name in makers} - {place}
        for place, names in enumerate(reads)
    ]


def _readers(needs: Sequence[set[int]]) -> list[list[int]]:
    readers: list[list[int]] = [[] for _ in needs]
    for place, needed in enumerate(needs):
        for one in needed:
            readers[one].append(place)
    return readers


def _places(given: Sequence[Node]) -> dict[str, int]:
    """Return the place of each node, by its name and by those of its results."""
    by_name = {node.name: place for place, node in enumerate(given) if node.name}
    return by_name | {name: place for place, node in enumerate(given) for name in node.makes}


def _wanted(
    nodes: Sequence[Node], readers: Sequence[Sequence[int]], places: Mapping[str, int]
) -> list[int]:
    """Return the place among those given that each node belongs to; ``nodes`` are sorted."""
    wanted = [len(places)] * len(nodes)
    for place in reversed(range(len(nodes))):
        node = nodes[place]
        made_of = [places[name] for name in node.makes if name in places]
        if not made_of:
            made_of = [one for one in (_named(node.name, places),) if one is not None]
        first = min((wanted[one] for one in readers[place]), default=len(places))
        wanted[place] = min(max(made_of, default=first), first)
    return wanted


def _named(name: str, places: Mapping[str, int]) -> int | None:
    """Return the place of what a node was made of, if its name begins with that one's."""
    while name:
        if name in places:
            return places[name]
        name = name[: max(0, *(name.rfind(mark) for mark in _MADE_OF))]
    return None


def _sorted(
    needs: Sequence[set[int]], readers: Sequence[Sequence[int]], wanted: Sequence[int]
) -> Iterator[int]:
    """Yield the nodes, each after those that it needs, and otherwise in the order wanted."""
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
