"""Layout sets of a tensor with several readers, and the costs of each set.

A program makes each distinct layout once, in the cheapest order (``reshard/shared_tree.py``). So a
node of the problem stands for a *set* of layouts: the producer pays for making the whole set, and
each reader requires its own layout in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tensoropt.compiler.reshard.resharder import Resharder
from tensoropt.compiler.reshard.shared_tree import spread
from tensoropt.compiler.search.problem.problem import EdgeTable, Floats, NodeTable
from tensoropt.compiler.sharding.rule.op_info import TensorInfo
from tensoropt.runtime.layout.layout import Layout

__all__ = [
    "LayoutSets",
    "add_read",
    "add_sets_node",
    "layout_sets",
    "making_costs",
    "making_tables",
    "reading_times",
]

_Set = tuple[Layout, ...]

LayoutSets = tuple[_Set, ...]
"""Sets of layouts, each in the order in which readers list them."""


def add_read(reads: dict[int, list[_Set]], reader: int, layouts: Sequence[Layout]) -> None:
    """Add a layout per option to the distinct layouts in which a node reads a tensor."""
    own = reads.setdefault(reader, [()] * len(layouts))
    pairs = zip(own, layouts, strict=True)
    reads[reader] = [(*held, x) if x not in held else held for held, x in pairs]


def add_sets_node(
    reads: Mapping[int, Sequence[_Set]],
    sets: LayoutSets,
    static_bytes: Sequence[float],
    nodes: list[NodeTable],
    edges: list[EdgeTable],
) -> int:
    """Add and return the node for the set of layouts in which nodes read a tensor."""
    node = len(nodes)
    nodes.append(NodeTable(np.zeros(len(sets)), np.array(static_bytes, dtype=np.float64)))
    for reader, own in reads.items():
        times = [[0.0 if {*one} <= {*held} else np.inf for one in own] for held in sets]
        edges.append(EdgeTable(node, reader, np.array(times)))
    return node


def layout_sets(readers: Iterable[Iterable[Sequence[Layout]]], most: int) -> LayoutSets | None:
    """Return every set that readers may require together; each requires one of its sequences.

    ``None`` if there are more than ``most``. Linear in the sets, times the sequences of a reader.
    """
    numbers: dict[Layout, int] = {}
    found = {frozenset[int](): None}
    for ways in readers:
        every = dict.fromkeys(map(tuple, ways))
        own = [{numbers.setdefault(x, len(numbers)) for x in way} for way in every]
        found = dict.fromkeys(held | way for held in found for way in own)
        if len(found) > most:
            return None
    layouts = list(numbers)
    return tuple(tuple(layouts[number] for number in sorted(held)) for held in found)


def making_tables(
    resharder: Resharder, info: TensorInfo, sources: Sequence[Layout], sets: LayoutSets
) -> tuple[Floats, Floats]:
    """Return seconds and bytes [source, set] of making all layouts of a set."""
    known: dict[Layout, list[tuple[float, float]]] = {}
    for source in sources:
        if source not in known:
            known[source] = [making_costs(resharder, info, source, held) for held in sets]
    costs = np.array([known[source] for source in sources])
    return np.ascontiguousarray(costs[:, :, 0]), np.ascontiguousarray(costs[:, :, 1])


def making_costs(
    resharder: Resharder, info: TensorInfo, source: Layout, wanted: Iterable[Layout]
) -> tuple[float, float]:
    """Return seconds and bytes of making distinct layouts from a source, as programs do.

    For several layouts the bytes are 0: a program may choose among trees of equal cost.
    """
    targets = [layout for layout in wanted if layout != source]
    if not targets:
        return 0.0, 0.0
    ends = [source, *targets]
    times, peaks = resharder.table(info.sizes, info.item_bytes, ends, ends)
    if not info.is_movable or not np.isfinite(times[0]).all():
        return math.inf, 0.0
    if len(targets) == 1:
        return float(times[0, 1]), float(peaks[0, 1])
    tree = spread(resharder, info.sizes, info.item_bytes, source, targets)
    moves = (resharder.path(info.sizes, info.item_bytes, of, to) for to, of in tree.items())
    return sum(move.time_s for move in moves), 0.0


def reading_times(sets: LayoutSets, wanted: Sequence[Layout]) -> Floats:
    """Return seconds [set, option] of reading a layout: 0 if the set has it, else infinite."""
    distinct = {
        layout: np.array([0.0 if layout in held else np.inf for held in sets])
        for layout in dict.fromkeys(wanted)
    }
    return np.ascontiguousarray(np.stack([distinct[layout] for layout in wanted], axis=1))
