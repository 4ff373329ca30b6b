"""How a tensor gets from one layout to several: which of them is made from which."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tensoropt.compiler.layout.layout import REPLICATE, Layout
from tensoropt.compiler.layout.mesh import Mesh, grouped
from tensoropt.compiler.layout.sizes import Size
from tensoropt.compiler.reshard.resharder import Resharder

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
    between = list(_between(source, targets, shape, resharder.mesh))
    layouts = [source, *targets, *between]
    times = resharder.table(shape, item_bytes, layouts, layouts)[0].tolist()
    tree = _cheapest(times, len(targets), len(layouts))
    return {layouts[target]: layouts[value] for target, value in tree.items()}


def _between(
    source: Layout, targets: Sequence[Layout], shape: Sequence[Size], mesh: Mesh
) -> Iterator[Layout]:
    """Yield the other layouts that mix these; with one target there is nothing to share."""
    if len(targets) < 2:
        return
    ends = [source, *targets]
    axes = zip(*(end.placements for end in ends), strict=True)
    mixed = [[*dict.fromkeys((REPLICATE, *(p for p in a if not p.is_partial)))] for a in axes]
    for layout in map(Layout, grouped(mesh, mixed)):
        if layout not in ends and layout.fits(shape, mesh):
            yield layout


def _cheapest(times: _Times, wanted: int, count: int) -> _Tree:
    """Return the cheapest tree: number 0 is there, 1 to ``wanted`` are wanted, others may be."""
    targets = range(1, wanted + 1)
    orders: Iterator[tuple[int, ...]]
    if wanted <= _ALL_ORDERS:
        orders = itertools.permutations(targets)
        firsts: Iterator[tuple[int, ...]] = ((n,) for n in range(wanted + 1, count))
        tried = itertools.product([(), *firsts], list(orders))
        trees = [_in_order(times, (*first, *order)) for first, order in tried]
    else:
        trees = [_nearest_first(times, wanted, first) for first in range(count)]
    return min(trees, key=lambda tree: sum(times[value][target] for target, value in tree.items()))


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
