"""The charge of the masks that fill padding: once for all readers of a mask."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.program.fills import Mask
from tensoropt.compiler.search.problem.problem import EdgeTable, NodeTable

__all__ = ["charge_masks", "users_of_masks"]


def users_of_masks(
    readers: Iterable[tuple[int, Sequence[Collection[Mask]], NDArray[np.int32] | slice]],
) -> dict[Mask, dict[int, NDArray[np.bool_]]]:
    """Return the options of each node of the problem that read each mask.

    A reader is a node of the problem with an op of it: the masks that each strategy of the op
    reads, and the strategy of each option. A node may have several ops.
    """
    found: dict[Mask, dict[int, NDArray[np.bool_]]] = {}
    for node, strategies, picked in readers:
        for mask in dict.fromkeys(mask for read in strategies for mask in read):
            users, reads = found.setdefault(mask, {}), [mask in read for read in strategies]
            own = np.array(reads)[picked]
            users[node] = users[node] | own if node in users else own
    return found


def charge_masks(
    users: Mapping[Mask, Mapping[int, NDArray[np.bool_]]],
    nodes: list[NodeTable],
    edges: list[EdgeTable],
) -> None:
    """Charge each mask once for all of its ``users``.

    Users are nodes of the problem, with the options that read the mask.
    """
    for mask, readers in users.items():
        here, none = len(nodes), np.zeros(2)
        nodes.append(NodeTable(none, np.array([0.0, mask.bytes])))
        for reader, reads in readers.items():
            times = np.where(reads[None], np.array([[np.inf], [0.0]]), 0.0)
            edges.append(EdgeTable(here, reader, times))
