"""How a tensor gets from one layout to several: which of them is made from which."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.layout.layout import REPLICATE, Layout
from tensoropt.compiler.layout.mesh import Mesh, grouped
from tensoropt.compiler.layout.sizes import Size
from tensoropt.compiler.reshard.resharder import Resharder
from tensoropt.compiler.reshard.shortest import Floats

__all__ = ["spread"]

# Up to four layouts are made in the best of all orders. Tensors are hardly ever wanted in more.
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
    """Return what each layout is made from: those of ``targets``, and one more if that is cheaper.

    ``targets`` are distinct and none is ``source``. The one more is complete and lies on each axis
    as one of the others does, or whole. No tree takes more time than the best star: a way to one
    layout, and from there alone to every other. Up to four targets it is the cheapest of all trees
    over the targets, and of all that make the one more first (Steiner trees in general are hard).
    Of equal ones it keeps closest to the order of ``targets``. O(k! k^2 m) for k targets and m
    layouts in between, O(k^3 m) above four.
    """
    if len(targets) == 1:
        return {targets[0]: source}
    between = list(_between(source, targets, shape, resharder.mesh))
    layouts = [source, *targets, *between]
    times = resharder.table(shape, item_bytes, layouts, layouts)[0]
    tree = _cheapest(times, len(targets), len(layouts))
    return {layouts[target]: layouts[value] for target, value in tree.items()}


def _between(
    source: Layout, targets: Sequence[Layout], shape: Sequence[Size], mesh: Mesh
) -> Iterator[Layout]:
    """Yield the other layouts that mix these."""
    ends = [source, *targets]
    axes = zip(*(end.placements for end in ends), strict=True)
    mixed = [[*dict.fromkeys((REPLICATE, *(p for p in a if not p.is_partial)))] for a in axes]
    for layout in map(Layout, grouped(mesh, mixed)):
        if layout not in ends and layout.fits(shape, mesh):
            yield layout


def _cheapest(table: Floats, wanted: int, count: int) -> _Tree:
    """Return the cheapest tree: number 0 is there, 1 to ``wanted`` are wanted, others may be."""
    times: _Times = table.tolist()
    if wanted <= _ALL_ORDERS:
        orders = list(itertools.permutations(range(1, wanted + 1)))
        best = int(_sums(table, np.array(orders), wanted).argmin())
        first = [] if best < len(orders) else [wanted + best // len(orders)]
        return _in_order(times, (*first, *orders[best % len(orders)]))
    trees = [_nearest_first(times, wanted, first) for first in range(count)]
    return min(trees, key=lambda tree: sum(times[value][target] for target, value in tree.items()))


def _sums(table: Floats, orders: npt.NDArray[np.int_], wanted: int) -> Floats:
    """Return the seconds of all orders, [none or which one is made first, order], in one row.

    Each layout is made from the nearest of those before it.
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
    """Make each layout from the nearest of those before it."""
    tree: _Tree = {}
    for target in order:
        tree[target] = _nearest(times, tree, target)
    return tree


def _nearest_first(times: _Times, wanted: int, first: int) -> _Tree:
    """Make ``first``, then always the layout that costs least."""
    tree = {first: 0} if first else {}
    left = [target for target in range(1, wanted + 1) if target != first]
    while left:
        target = min(left, key=lambda to: times[_nearest(times, tree, to)][to])
        tree[target] = _nearest(times, tree, target)
        left.remove(target)
    return tree


def _nearest(times: _Times, tree: _Tree, target: int) -> int:
    return min([0, *tree], key=lambda layout: times[layout][target])
