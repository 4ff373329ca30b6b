"""Steps: every one that is offered is right, and every one that is right is offered."""

from __future__ import annotations

import numpy as np
import pytest
from reshard.simulator import run_step

from tensoropt.compiler.layout.layout import Layout, Placement, Reduction
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.reshard.steps import (
    ReshardStep,
    StepKind,
    is_mixed,
    layouts_of_rank,
    steps_from,
)
from tensoropt.compiler.sharding.proof.parts import combine, cut

ALL: tuple[Reduction, ...] = ("sum", "max", "min")
KINDS: dict[str, StepKind] = {
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
    parts = run_step(step, cut(array, step.src, mesh, np.random.default_rng(0)), mesh)
    if parts[0].shape != step.dst.local_shape(shape, mesh):
        return False
    try:
        return np.array_equal(combine(parts, step.dst, mesh, shape), array)
    except AssertionError:
        return False


def naive_step(src: Layout, dst: Layout) -> ReshardStep | None:
    """Return the one collective that would lead from ``src`` to ``dst`` if order did not matter."""
    axes = tuple(a for a, own in enumerate(src.placements) if own != dst.placements[a])
    before, after = {src.placements[a] for a in axes}, {dst.placements[a] for a in axes}
    if len(before) != 1 or len(after) != 1:
        return None
    old, new = before.pop(), after.pop()
    kind = KINDS.get(old.kind + new.kind)
    if kind is None:
        return None
    dims = [p.dim for p in (old, new) if p.is_split] + [None, None]
    return ReshardStep(kind, axes, src, dst, dims[0], dims[1], old.reduction or new.reduction)


@pytest.mark.parametrize(
    ("mesh", "shape", "reductions"),
    [
        (Mesh((2,)), (4,), ALL),
        (Mesh((2, 2)), (4, 4), ALL),
        (Mesh((2, 4)), (8, 8), ("sum",)),
        (Mesh((2, 2, 2)), (8, 8), ("max",)),
    ],
    ids=str,
)
def test_offered_steps_are_exactly_the_right_ones(
    mesh: Mesh, shape: tuple[int, ...], reductions: tuple[Reduction, ...]
) -> None:
    layouts = layouts_of_rank(len(shape), mesh, reductions)
    seen = set()
    for src in layouts:
        offered = set(steps_from(src, len(shape), mesh, reductions))
        naive = (naive_step(src, dst) for dst in layouts)
        assert offered == {step for step in naive if step and is_right(step, mesh, shape)}
        seen |= {step.kind for step in offered}
    assert seen == set(KINDS.values()) or len(shape) == 1


def test_only_the_minor_axes_of_a_dimension_can_be_gathered() -> None:
    src = Layout.parse(["S(0)", "S(0)"])
    gathers = [s for s in steps_from(src, 1, Mesh((2, 2)), ()) if s.kind == "all_gather"]
    assert [step.axes for step in gathers] == [(1,), (0, 1)]


def test_axes_of_one_rank_are_left_alone() -> None:
    mesh = Mesh((1, 2))
    assert {str(x) for x in layouts_of_rank(1, mesh, ())} == {"[R, R]", "[R, S(0)]"}
    assert [s.axes for s in steps_from(Layout.replicated(mesh), 1, mesh, ())] == [(1,)]


def test_mixed_reductions_are_no_layout() -> None:
    mixed = Layout.parse(["P(sum)", "P(max)"])
    assert is_mixed(mixed)
    assert not is_mixed(mixed.replace([1], Placement.parse("P(sum)")))
    assert mixed not in layouts_of_rank(1, Mesh((2, 2)), ALL)
    targets = {step.dst for step in steps_from(Layout.parse(["P(sum)", "R"]), 1, Mesh((2, 2)), ALL)}
    assert mixed not in targets


def test_step_text() -> None:
    step = naive_step(Layout.parse(["S(0)", "R"]), Layout.parse(["S(1)", "R"]))
    assert str(step) == "all_to_all [0]: [S(0), R] -> [S(1), R]"
