"""Steps: every one that is offered is right, and every one that is right is offered."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from reshard.simulator import run_step, splits

from tensoropt.compiler.reshard.steps import (
    ReshardStep,
    SplitsOfDims,
    layouts_of_rank,
    permutes,
    steps_from,
)
from tensoropt.compiler.sharding.proof.parts import combine, cut
from tensoropt.runtime.layout.layout import Layout, Placement, Reduction
from tensoropt.runtime.layout.mesh import Mesh

ALL: tuple[Reduction, ...] = ("sum", "max", "min")
KINDS: dict[str, str] = {
    "SR": "all_gather",
    "PR": "all_reduce",
    "PS": "reduce_scatter",
    "SS": "all_to_all",
    "RS": "all_slice",
    "RP": "partialize",
}


def is_right(step: ReshardStep, mesh: Mesh, shape: tuple[int, ...]) -> bool:
    """Run the step on a tensor of distinct values; say whether it arrives as ``step.dst``."""
    array = np.arange(int(np.prod(shape))).reshape(shape)
    parts = run_step(step, cut(array, step.src, mesh, np.random.default_rng(0)), shape, mesh)
    if parts[0].shape != step.dst.local_shape(shape, mesh):
        return False
    try:
        return np.array_equal(combine(parts, step.dst, mesh, shape), array)
    except AssertionError:
        return False


def naive_steps(src: Layout, dst: Layout) -> Iterator[ReshardStep]:
    """Yield the collectives that would lead from ``src`` to ``dst`` if order did not matter, with
    groups in every order."""
    axes = tuple(a for a, own in enumerate(src.placements) if own != dst.placements[a])
    before, after = {src.placements[a] for a in axes}, {dst.placements[a] for a in axes}
    if len(before) != 1 or len(after) != 1:
        return
    old, new = before.pop(), after.pop()
    kind = KINDS.get(old.kind + new.kind)
    if kind is None or (kind == "all_to_all" and old.dim == new.dim):
        return
    dims = [p.dim for p in (old, new) if p.is_split] + [None, None]
    for order in itertools.permutations(axes) if dims[0] is not None else [axes]:
        yield ReshardStep(kind, order, src, dst, dims[0], dims[1], old.reduction or new.reduction)


@pytest.mark.parametrize(
    ("mesh", "shape", "reductions", "others"),
    [
        (Mesh((2,)), (4,), ALL, {}),
        (Mesh((2, 2)), (4, 4), ALL, {}),
        (Mesh((2, 4)), (8, 8), ("sum",), {}),
        (Mesh((2, 2, 2)), (8, 8), ("max",), {}),
        (Mesh((2, 2)), (12, 24), ("sum",), splits("S(0 of 3)", "S(1 of 2+1)", "S(1 of 2)")),
    ],
    ids=str,
)
def test_offered_steps_are_exactly_the_right_ones(
    mesh: Mesh, shape: tuple[int, ...], reductions: tuple[Reduction, ...], others: SplitsOfDims
) -> None:
    layouts = layouts_of_rank(len(shape), mesh, reductions, others)
    seen = set()
    for src in layouts:
        offered = set(steps_from(src, len(shape), mesh, reductions, others))
        naive = (step for dst in layouts for step in naive_steps(src, dst))
        assert offered == {step for step in naive if is_right(step, mesh, shape)}
        seen |= {step.kind for step in offered}
    assert seen == set(KINDS.values()) or len(shape) == 1


def test_only_the_minor_axes_of_a_dimension_can_be_gathered() -> None:
    src = Layout.parse(["S(0)", "S(0)"])
    gathers = [s for s in steps_from(src, 1, Mesh((2, 2)), ()) if s.kind == "all_gather"]
    assert [step.axes for step in gathers] == [(1,), (0, 1)]
    turned = Layout.parse(["S(0, 1)", "S(0, 0)"])
    gathers = [s for s in steps_from(turned, 1, Mesh((2, 2)), ()) if s.kind == "all_gather"]
    assert [step.axes for step in gathers] == [(0,), (1, 0)]


def test_on_deep_meshes_axes_keep_their_order() -> None:
    mesh = Mesh((2, 2, 2, 2))
    assert not any(layout.turned for layout in layouts_of_rank(2, mesh, ("sum",)))


@pytest.mark.parametrize("mesh", [Mesh((2, 2)), Mesh((2, 4)), Mesh((2, 2, 2))], ids=str)
def test_permutes_are_right_and_keep_what_is_there(mesh: Mesh) -> None:
    layouts = layouts_of_rank(2, mesh, ("sum",))
    steps = [*permutes(layouts, 2, mesh)]
    assert {step.src for step in steps} < {*layouts}
    for step in steps:
        sources = step.sources(mesh)
        assert sorted(sources) == [*range(mesh.extent(step.axes))]
        assert is_right(step, mesh, (8, 8))
        group = mesh.group(0, step.axes)
        for place, source in enumerate(sources):
            same = step.src.piece(group[place], mesh) == step.dst.piece(group[place], mesh)
            assert (place == source) == same


def test_a_permute_swaps_axes() -> None:
    src, dst = Layout.parse(["S(0)", "R"]), Layout.parse(["R", "S(0)"])
    (step,) = (s for s in permutes([src, dst], 1, Mesh((2, 2))) if s.src == src)
    assert (step.axes, step.sources(Mesh((2, 2)))) == ((0, 1), (0, 2, 1, 3))
    assert not [*permutes([src, dst], 1, Mesh((2, 4)))]


def test_axes_of_one_rank_are_left_alone() -> None:
    mesh = Mesh((1, 2))
    assert {str(x) for x in layouts_of_rank(1, mesh, ())} == {"[R, R]", "[R, S(0)]"}
    assert [s.axes for s in steps_from(Layout.replicated(mesh), 1, mesh, ())] == [(1,)]


def test_mixed_reductions_are_no_layout() -> None:
    mixed = Layout.parse(["P(sum)", "P(max)"])
    assert mixed.is_mixed
    assert not mixed.replace([1], Placement.parse("P(sum)")).is_mixed
    assert mixed not in layouts_of_rank(1, Mesh((2, 2)), ALL)
    targets = {step.dst for step in steps_from(Layout.parse(["P(sum)", "R"]), 1, Mesh((2, 2)), ALL)}
    assert mixed not in targets


def test_step_text() -> None:
    (step,) = naive_steps(Layout.parse(["S(0)", "R"]), Layout.parse(["S(1)", "R"]))
    assert str(step) == "all_to_all [0]: [S(0), R] -> [S(1), R]"
