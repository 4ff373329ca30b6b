"""Reshard trees: the cheapest derivation of several layouts of a tensor from one source."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.layout.layouts import fits
from tensoropt.compiler.layout.mesh import grouped
from tensoropt.compiler.layout.sizes import Size
from tensoropt.compiler.reshard.resharder import Resharder
from tensoropt.compiler.reshard.shortest import Floats
from tensoropt.runtime.layout.layout import REPLICATE, Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["spread"]

# Up to four targets, all orders are tried. Tensors rarely need more layouts.
_ALL_ORDERS = 4

_Times = Sequence[Sequence[float]]
_Tree = dict[int, int]


def spread(
    resharder: Resharder,
    shape: Sequence[Size],
    item_bytes: int,
    source: Layout,
    targets: Sequence[Layout],
) -> dict[Layout, Layout]:
    """Return the layout that each of ``targets`` is made from.

    ``targets`` are distinct and do not include ``source``. The tree may contain one intermediate
    layout if that is cheaper: one without partial results that, on each axis, is replicated or
    equal to one of the others. The tree never takes longer than the best star, which goes to one
    layout and from there directly to every other. Up to four targets it is the cheapest of all
    trees over the targets, including trees that make the intermediate layout first (Steiner trees
    in general are hard). Ties go to the tree closest to the order of ``targets``. O(k! k^2 m) for
    k targets and m intermediate layouts, O(k^3 m) above four targets.
    """
    if len(targets) == 1:
        return {targets[0]: source}
    between = list(_intermediate_layouts(source, targets, shape, resharder.mesh))
    layouts = [source, *targets, *between]
    times = resharder.table(shape, item_bytes, layouts, layouts)[0]
    tree = _cheapest(times, len(targets), len(layouts))
    return {layouts[target]: layouts[value] for target, value in tree.items()}


def _intermediate_layouts(
    source: Layout, targets: Sequence[Layout], shape: Sequence[Size], mesh: Mesh
) -> Iterator[Layout]:
    """Yield the candidates for an intermediate layout."""
    ends = [source, *targets]
    axes = zip(*(end.placements for end in ends), strict=True)
    mixed = [[*dict.fromkeys((REPLICATE, *(p for p in a if not p.is_partial)))] for a in axes]
    for layout in map(Layout, grouped(mesh, mixed)):
        if layout not in ends and fits(layout, shape, mesh):
            yield layout


def _cheapest(table: Floats, wanted: int, count: int) -> _Tree:
    """Return the cheapest tree: 0 is the source, 1 to ``wanted`` the targets, the rest optional."""
    times: _Times = table.tolist()
    if wanted <= _ALL_ORDERS:
        orders = list(itertools.permutations(range(1, wanted + 1)))
        best = int(_sums(table, np.array(orders), wanted).argmin())
        first = [] if best < len(orders) else [wanted + best // len(orders)]
        return _in_order(times, (*first, *orders[best % len(orders)]))
    trees = [_nearest_first(times, wanted, first) for first in range(count)]
    return min(trees, key=lambda tree: sum(times[value][target] for target, value in tree.items()))


def _sums(table: Floats, orders: npt.NDArray[np.int_], wanted: int) -> Floats:
    """Return the seconds of all orders, flattened from [no or one intermediate layout, order].

    Each layout is made from the nearest earlier layout.
    """
    firsts = np.concatenate([table[:1], table[wanted + 1 :]])[:, None, :]
    total = np.zeros((len(firsts), len(orders)))
    total[1:] += table[0, wanted + 1 :, None]
    near = np.minimum(table[0], firsts)
    for place in range(wanted):
        own = orders[:, place]
        seconds = near[:, 0, own]
        for before in range(place):
            seconds = np.minimum(seconds, table[orders[:, before], own])
        total += seconds
    return total.reshape(-1)


def _in_order(times: _Times, order: Sequence[int]) -> _Tree:
    """Return the tree that makes each layout from the nearest earlier layout."""
    tree: _Tree = {}
    for target in order:
        tree[target] = _nearest(times, tree, target)
    return tree


def _nearest_first(times: _Times, wanted: int, first: int) -> _Tree:
    """Return the tree that makes ``first``, then greedily the cheapest layout."""
    tree = {first: 0} if first else {}
    left = [target for target in range(1, wanted + 1) if target != first]
    while left:
        target = min(left, key=lambda to: times[_nearest(times, tree, to)][to])
        tree[target] = _nearest(times, tree, target)
        left.remove(target)
    return tree


def _nearest(times: _Times, tree: _Tree, target: int) -> int:
    return min([0, *tree], key=lambda layout: times[layout][target])
