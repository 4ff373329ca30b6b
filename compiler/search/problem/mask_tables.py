"""The charge of the masks that fill padding: once for all readers of a mask."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.program.fills import Mask
from tensoropt.compiler.search.problem.problem import EdgeTable, NodeTable

__all__ = ["charge_masks"]


def charge_masks(
    readers: Iterable[tuple[int, Sequence[Collection[Mask]], NDArray[np.int32] | slice]],
    nodes: list[NodeTable],
    edges: list[EdgeTable],
) -> None:
    """Charge each mask once for all of its readers.

    A reader is a node of the problem with an op of it: the masks that each strategy of the op
    reads, and the strategy of each option. A node may have several ops.
    """
    users: dict[Mask, dict[int, NDArray[np.bool_]]] = {}
    for node, strategies, picked in readers:
        for mask in dict.fromkeys(mask for read in strategies for mask in read):
            flags, reads = users.setdefault(mask, {}), [mask in read for read in strategies]
            own = np.array(reads)[picked]
            flags[node] = flags[node] | own if node in flags else own
    for mask, flags in users.items():
        here, none = len(nodes), np.zeros(2)
        nodes.append(NodeTable(none, np.array([0.0, mask.bytes])))
        for node, own in flags.items():
            times = np.where(own[None], np.array([[np.inf], [0.0]]), 0.0)
            edges.append(EdgeTable(here, node, times))
