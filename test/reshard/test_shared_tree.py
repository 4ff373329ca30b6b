"""One layout to several: the tree against all trees, and against every star."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.reshard.resharder import Resharder
from tensoropt.compiler.reshard.shared_tree import spread
from tensoropt.runtime.layout.layout import REPLICATE, Layout, partial, split
from tensoropt.runtime.layout.mesh import Mesh

MESH = Mesh((2, 4))
SHAPE, ITEM_BYTES = (64, 512), 4
RESHARDER = Resharder(MESH, load_device("h200"))
PLACEMENTS = (REPLICATE, split(0), split(1))
COMPLETE = [Layout(p) for p in itertools.product(PLACEMENTS, repeat=2)]
SOURCES = [*COMPLETE, Layout((partial("sum"), split(1))), Layout((partial("sum"),) * 2)]


def _time_s(a: Layout, b: Layout) -> float:
    return RESHARDER.path(SHAPE, ITEM_BYTES, a, b).time_s


def _total_s(tree: Mapping[Layout, Layout]) -> float:
    return sum(_time_s(held, target) for target, held in tree.items())


def _reaches(tree: Mapping[Layout, Layout], source: Layout, target: Layout) -> bool:
    for _ in tree:
        target = tree.get(target, source)
    return target == source


def _least_s(source: Layout, targets: Sequence[Layout]) -> float:
    """Return the time of the best tree over these layouts alone, from all that there are."""
    held = [[end for end in (source, *targets) if end != target] for target in targets]
    trees = (dict(zip(targets, made, strict=True)) for made in itertools.product(*held))
    return min(_total_s(t) for t in trees if all(_reaches(t, source, end) for end in targets))


@examples(60)
@given(st.sampled_from(SOURCES), st.lists(st.sampled_from(COMPLETE), max_size=5, unique=True))
def test_no_star_and_no_tree_is_cheaper(source: Layout, wanted: list[Layout]) -> None:
    targets = [layout for layout in wanted if layout != source]
    tree = spread(RESHARDER, SHAPE, ITEM_BYTES, source, targets)
    assert set(targets) <= set(tree) and source not in tree
    assert all(_reaches(tree, source, target) for target in tree)
    slack = 1 + 1e-9
    if len(targets) <= 4:
        assert _total_s(tree) <= _least_s(source, targets) * slack
    mixed = [c for c in COMPLETE if all(_is_mixed(c, axis, source, targets) for axis in range(2))]
    for middle in mixed if len(targets) > 1 else []:
        star = _time_s(source, middle) + sum(_time_s(middle, end) for end in targets)
        assert _total_s(tree) <= star * slack


def _is_mixed(layout: Layout, axis: int, source: Layout, targets: Sequence[Layout]) -> bool:
    held = {end.placements[axis] for end in (source, *targets)}
    return layout.placements[axis] in held | {REPLICATE}


def test_one_target_is_made_from_the_source() -> None:
    source, target = Layout((split(0), REPLICATE)), Layout((split(1), split(1)))
    assert spread(RESHARDER, SHAPE, ITEM_BYTES, source, [target]) == {target: source}


def test_a_sum_that_is_wanted_whole_and_cut_is_paid_once() -> None:
    total, whole, cut = (Layout((p, REPLICATE)) for p in (partial("sum"), REPLICATE, split(0)))
    small = spread(RESHARDER, (8, 8), ITEM_BYTES, total, [cut, whole])
    assert small == {whole: total, cut: whole}


def test_the_order_of_equal_trees_is_that_of_the_targets() -> None:
    source = Layout.replicated(MESH)
    targets = [Layout((split(0), REPLICATE)), Layout((split(1), REPLICATE))]
    assert list(spread(RESHARDER, SHAPE, ITEM_BYTES, source, targets)) == targets


@pytest.mark.parametrize("shape", [(3, 5), (None, 6)])
def test_layouts_in_between_fit_the_tensor(shape: tuple[int | None, ...]) -> None:
    source, target = Layout((partial("sum"), partial("sum"))), Layout.replicated(MESH)
    other = Layout((REPLICATE, partial("sum")))
    tree = spread(RESHARDER, shape, ITEM_BYTES, source, [target, other])
    assert set(tree) == {target, other}
