"""Reshard paths: they arrive, nothing is faster, and the table says the same as the path."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from reshard.simulator import run_step, splits

from tensoropt.compiler.cost.communication import collective_time_s
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.layout.layouts import fits
from tensoropt.compiler.reshard.resharder import Path, Resharder
from tensoropt.compiler.reshard.steps import (
    CONTIGUOUS,
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
SHAPES = ((2,), (4,), (2, 2), (2, 3), (2, 4), (2, 2, 2), (5,), (1, 4), (2, 1, 2, 2, 2))
MESHES = [Mesh(shape) for shape in SHAPES]
RESHARDERS = {
    (mesh, name): Resharder(mesh, load_device(name)) for mesh in MESHES for name in ("cpu", "h200")
}


def layouts_for(
    shape: tuple[int, ...], mesh: Mesh, others: SplitsOfDims = CONTIGUOUS
) -> list[Layout]:
    every = layouts_of_rank(len(shape), mesh, ALL, others)
    return [layout for layout in every if fits(layout, shape, mesh)]


@st.composite
def moves(draw: st.DrawFn) -> tuple[Resharder, tuple[int, ...], Layout, Layout]:
    mesh = draw(st.sampled_from(MESHES))
    resharder = RESHARDERS[mesh, draw(st.sampled_from(["cpu", "h200"]))]
    sizes = st.sampled_from(
        [1, 2, 3, 4, 6, 8, 12, 16, 63]
    )  # of 63, the parts on 2 and 4 have padding
    shape = tuple(draw(st.lists(sizes, max_size=3)))
    ways = st.sampled_from(["of 2", "of 2+1", "in 3", "in 7", "of 4+1+1 in 4+1+1", "of 3 in 7"])
    others = splits(*(f"S({dim} {draw(ways)})" for dim in range(len(shape))))
    layouts = st.sampled_from(layouts_for(shape, mesh, others))
    return resharder, shape, draw(layouts), draw(layouts)


@examples(300)
@given(moves(), st.integers(0, 2**32 - 1))
def test_every_path_arrives(
    move: tuple[Resharder, tuple[int, ...], Layout, Layout], seed: int
) -> None:
    resharder, shape, src, dst = move
    rng, mesh = np.random.default_rng(seed), resharder.mesh
    array = rng.integers(-99, 99, size=shape)
    parts, layout = cut(array, src, mesh, rng), src
    for step in resharder.path(shape, 8, src, dst).steps:
        assert step.src == layout
        parts = run_step(step, [padded(part, step, shape, mesh) for part in parts], shape, mesh)
        layout = step.dst
        local = layout.local_shape(shape, mesh)
        parts = [part[tuple(map(slice, local))] for part in parts]  # no more padding than it has
        assert fits(layout, shape, mesh)
        assert {part.shape for part in parts} == {layout.local_shape(shape, mesh)}
    assert layout == dst
    np.testing.assert_array_equal(combine(parts, dst, mesh, shape), array)


def padded(part: Any, step: ReshardStep, shape: tuple[int, ...], mesh: Mesh) -> Any:
    """Return a part with what makes the cuts of a step even behind it, some number."""
    new = set(step.dst.padded_dims(shape, mesh)) - set(step.src.padded_dims(shape, mesh))
    new = {dim for dim in new if not step.dst.blocks(dim)}
    local = step.dst.local_shape(shape, mesh)
    sizes = {dim: step.dst.pieces(dim, mesh) * (local[dim] or 0) for dim in new}
    behind = [(0, sizes.get(dim, size) - size) for dim, size in enumerate(part.shape)]
    return np.pad(part, behind, constant_values=77) if new else part


def local_bytes(layout: Layout, shape: tuple[int, ...], mesh: Mesh) -> int:
    return 4 * math.prod(size or 0 for size in layout.local_shape(shape, mesh))


def step_bytes(step: ReshardStep, shape: tuple[int, ...], mesh: Mesh) -> list[int]:
    """Return the bytes of a part before a step, with what is padded, with what padding is left, and
    after it."""
    before, after = (local_bytes(layout, shape, mesh) for layout in (step.src, step.dst))
    read = _whole_bytes(before, step.src, step.dst, shape, mesh)
    made = _whole_bytes(after, step.dst, step.src, shape, mesh)
    return [before, before if _picks(step) else read, made, after]


def _picks(step: ReshardStep) -> bool:
    """Say whether a step slices blocks in units, with their padding and copies."""
    return step.kind == "all_slice" and _is_joint(step.dst.placements[step.axes[0]])


def _is_joint(placement: Placement) -> bool:
    return bool(placement.blocks and placement.units)


def _whole_bytes(size: int, own: Layout, other: Layout, shape: tuple[int, ...], mesh: Mesh) -> int:
    """Return ``size`` with the padding that ``other`` has where ``own`` has none."""
    for dim in set(other.padded_dims(shape, mesh)) - set(own.padded_dims(shape, mesh)):
        part = other.local_shape(shape, mesh)[dim] or 0
        size = size // shape[dim] * part * other.pieces(dim, mesh)
    return size


def nests(step: ReshardStep, shape: tuple[int, ...], mesh: Mesh) -> bool:
    """Say whether both ends of a step have as much padding in each dimension that both split."""
    ends = step.src, step.dst
    for dim in range(len(shape)):
        pieces = [end.pieces(dim, mesh) for end in ends]
        parts = [end.local_shape(shape, mesh)[dim] or 0 for end in ends]
        if 1 not in pieces and parts[0] * pieces[0] != parts[1] * pieces[1]:
            return False
        splits = (end.split_of(dim) for end in ends)
        joint = any(own is not None and _is_joint(own) for own in splits)
        if joint and 1 not in pieces and pieces[0] != pieces[1]:
            return False
    return True


def step_time_s(step: ReshardStep, shape: tuple[int, ...], resharder: Resharder) -> float:
    """Return the time of a step, written out a second time."""
    mesh, device = resharder.mesh, resharder.device
    before, read, made, after = step_bytes(step, shape, mesh)
    copied = [read] if step.arranged_dim is not None or read != before else []
    copied += [made] if step.restored_dim is not None or made != after else []
    time_s = sum(
        device.launch_overhead_s + 2 * size / device.memory_bandwidth_bytes_per_s for size in copied
    )
    if step.kind == "all_slice" or step.kind == "partialize":
        each = made if step.kind == "partialize" else read / mesh.extent(step.axes)
        return time_s + device.launch_overhead_s + 2 * each / device.memory_bandwidth_bytes_per_s
    return time_s + collective_time_s(step.kind, read, step.axes, mesh, device)


def by_relaxation(
    shape: tuple[int, ...], src: Layout, resharder: Resharder, others: SplitsOfDims
) -> dict[Layout, float]:
    """Return the shortest times from ``src``: Bellman and Ford's method, edge by edge."""
    mesh, layouts = resharder.mesh, layouts_for(shape, resharder.mesh, others)
    steps = [s for x in layouts for s in steps_from(x, len(shape), mesh, ALL, others)]
    steps += permutes(layouts, len(shape), mesh)
    fitting = [s for s in steps if fits(s.dst, shape, mesh) and nests(s, shape, mesh)]
    edges = [(s, step_time_s(s, shape, resharder)) for s in fitting]
    best = dict.fromkeys(layouts, math.inf) | {src: 0.0}
    changed = True
    while changed:
        changed = False
        for step, time_s in edges:
            if best[step.src] + time_s < best[step.dst] * (1 - 1e-12):
                best[step.dst], changed = best[step.src] + time_s, True
    return best


@pytest.mark.parametrize("name", ["cpu", "h200"])
@pytest.mark.parametrize(
    ("mesh", "shape", "others"),
    [
        (Mesh((4,)), (8, 4096), {}),
        (Mesh((2, 2)), (4, 2, 8), {}),
        (Mesh((2, 4)), (8, 8192), {}),
        (Mesh((2, 2, 2)), (8, 4), {}),
        (Mesh((4,)), (63, 4096), {}),
        (Mesh((2, 3)), (63, 36, 65), {}),
        (Mesh((4,)), (63, 6144), splits("S(1 of 3)", "S(1 of 4+1+1)")),
        (Mesh((2, 2)), (63, 24), {}),
        (Mesh((2, 3)), (768, 35), splits("S(0 in 12)", "S(1 in 7)")),
        (Mesh((2, 2)), (24, 6144), splits("S(0 of 2)", "S(1 of 4+1+1)")),
        (Mesh((2, 2)), (24, 1280), splits("S(0 of 3 in 7)", "S(1 of 8+1+1 in 8+1+1)")),
        (Mesh((5,)), (36, 8), splits("S(0 of 3 in 12)")),
    ],
    ids=str,
)
def test_nothing_is_faster(
    mesh: Mesh, shape: tuple[int, ...], others: SplitsOfDims, name: str
) -> None:
    resharder = RESHARDERS[mesh, name]
    layouts = layouts_for(shape, mesh, others)
    for src in layouts[::13]:
        best = by_relaxation(shape, src, resharder, others)
        for dst in layouts:
            path = resharder.path(shape, 4, src, dst)
            assert path.time_s == pytest.approx(best[dst], rel=1e-9)
            total_s = sum(step_time_s(step, shape, resharder) for step in path.steps)
            assert path.time_s == pytest.approx(total_s, rel=1e-12)
            held = [max(_held(step, *step_bytes(step, shape, mesh))) for step in path.steps]
            assert path.peak_bytes == max(held, default=0)


def _held(step: ReshardStep, before: int, read: int, made: int, after: int) -> Iterator[int]:
    yield read + made
    if step.arranged_dim is not None:
        yield 2 * read
    if step.restored_dim is not None:
        yield 2 * made
    if read != before and step.arranged_dim is None:
        yield before + read
    if made != after and step.restored_dim is None:
        yield made + after


def test_table_in_blocks_says_the_same_as_path() -> None:
    shape, resharder = (12, 3 << 12), RESHARDERS[Mesh((2, 2)), "h200"]
    layouts = layouts_for(shape, resharder.mesh, splits("S(0 of 2)", "S(1 of 3)", "S(1 of 2+1)"))[
        ::2
    ]
    time_s, transient_bytes = resharder.table(shape, 4, layouts, layouts)
    for (row, src), (column, dst) in itertools.product(enumerate(layouts), repeat=2):
        path = resharder.path(shape, 4, src, dst)
        assert time_s[row, column] == pytest.approx(path.time_s, rel=1e-12)
        assert transient_bytes[row, column] == path.peak_bytes


@pytest.mark.parametrize("shape", [(8, 6, 4), (16, 1 << 16), (), (0, 8)], ids=str)
@pytest.mark.parametrize("mesh", [Mesh((4,)), Mesh((2, 2)), Mesh((2, 2, 2))], ids=str)
def test_table_says_the_same_as_path(mesh: Mesh, shape: tuple[int, ...]) -> None:
    resharder = RESHARDERS[mesh, "h200"]
    layouts = layouts_for(shape, mesh)[::3]
    time_s, transient_bytes = resharder.table(shape, 4, layouts, layouts)
    for (row, src), (column, dst) in itertools.product(enumerate(layouts), repeat=2):
        path = resharder.path(shape, 4, src, dst)
        assert time_s[row, column] == path.time_s
        assert transient_bytes[row, column] == path.peak_bytes


@examples(100)
@given(moves())
def test_triangle_inequality(move: tuple[Resharder, tuple[int, ...], Layout, Layout]) -> None:
    resharder, shape, src, dst = move
    layouts = layouts_for(shape, resharder.mesh)
    out_s, _ = resharder.table(shape, 4, [src], layouts)
    on_s, _ = resharder.table(shape, 4, layouts, [dst])
    direct_s, _ = resharder.table(shape, 4, [src], [dst])
    assert np.isfinite(out_s).all() and np.isfinite(on_s).all()
    assert (direct_s <= (out_s[0] + on_s[:, 0]) * (1 + 1e-12)).all()


def kinds(path: Path) -> list[str]:
    return [f"{step.kind} {list(step.axes)}" for step in path.steps]


def find(
    mesh: tuple[int, ...], shape: tuple[int, ...], src: list[str], dst: list[str]
) -> list[str]:
    resharder = Resharder(Mesh(mesh), load_device("h200"))
    return kinds(resharder.path(shape, 4, Layout.parse(src), Layout.parse(dst)))


def test_one_collective_over_both_axes() -> None:
    both = ["all_reduce [0, 1]"]
    assert find((2, 2), (1024,), ["P(sum)", "P(sum)"], ["R", "R"]) == both
    assert find((2, 2), (1024,), ["S(0)", "S(0)"], ["R", "R"]) == ["all_gather [0, 1]"]


def test_a_large_sum_over_two_nodes_crosses_the_network_in_pieces() -> None:
    assert find((2, 8), (64, 1 << 20), ["P(sum)", "P(sum)"], ["R", "R"]) == [
        "reduce_scatter [1]",
        "all_reduce [0]",
        "all_gather [1]",
    ]


def test_parts_of_equal_sizes_change_ranks() -> None:
    assert find((2, 2), (64, 1 << 20), ["R", "S(0)"], ["S(0)", "R"]) == [
        "collective_permute [0, 1]"
    ]
    assert find((2, 2), (8, 1 << 20), ["S(0, 1)", "S(0, 0)"], ["S(0)", "S(0)"]) == [
        "collective_permute [0, 1]"
    ]


def test_the_major_axis_moves_together_with_the_minor() -> None:
    assert find((2, 2), (8, 1 << 20), ["S(0)", "S(0)"], ["S(1)", "S(0)"]) == [
        "all_to_all [0, 1]",
        "all_to_all [1]",
    ]


def test_one_reduction_becomes_another_only_through_the_result() -> None:
    assert find((2,), (8,), ["P(max)"], ["P(sum)"]) == ["all_reduce [0]", "partialize [0]"]


def test_nothing_to_do() -> None:
    resharder = RESHARDERS[Mesh((2, 2)), "cpu"]
    layout = Layout.parse(["S(0)", "P(sum)"])
    assert resharder.path((4, 4), 4, layout, layout) == Path((), 0.0, 0)


def test_axes_of_one_rank_cost_nothing() -> None:
    resharder = RESHARDERS[Mesh((1, 4)), "cpu"]
    src, dst = Layout.parse(["S(0)", "R"]), Layout.parse(["P(sum)", "R"])
    assert resharder.path((3, 4), 4, src, dst) == Path((), 0.0, 0)
    alone = Resharder(Mesh((1,)), load_device("cpu"))
    time_s, _ = alone.table((4,), 4, [Layout.parse(["S(0)"])], [Layout.parse(["R"])])
    assert time_s.tolist() == [[0.0]]


def test_symbolic_dimensions_count_as_one_and_are_not_split() -> None:
    resharder = RESHARDERS[Mesh((2, 2)), "cpu"]
    src, dst = Layout.parse(["S(1)", "R"]), Layout.parse(["R", "S(1)"])
    path = resharder.path((None, 8), 4, src, dst)
    assert path.peak_bytes == 16 + 16
    assert all(layout.dim != 0 for step in path.steps for layout in step.dst.placements)


@pytest.mark.parametrize(
    ("shape", "texts"),
    [
        ((1, 4), ["S(0)", "R"]),
        ((2, 4), ["S(0)", "S(0)"]),
        ((None, 4), ["S(0)", "R"]),
        ((4,), ["S(1)", "R"]),
        ((4, 4), ["P(sum)", "P(max)"]),
    ],
)
def test_impossible_layouts(shape: tuple[int | None, ...], texts: list[str]) -> None:
    resharder = RESHARDERS[Mesh((2, 2)), "cpu"]
    wrong, whole = Layout.parse(texts), Layout.replicated(Mesh((2, 2)))
    time_s, transient_bytes = resharder.table(shape, 4, [wrong, whole], [whole, wrong])
    assert np.isinf(time_s).tolist() == [[True, True], [False, True]]
    assert np.isinf(transient_bytes).tolist() == [[True, True], [False, True]]
    for src, dst in ((wrong, whole), (whole, wrong)):
        with pytest.raises(ValueError, match="cannot have layout"):
            resharder.path(shape, 4, src, dst)


def test_other_reductions_in_a_table_change_nothing() -> None:
    mesh, shape = Mesh((2, 2, 2)), (8, 4, 2)
    plain = [x for x in layouts_of_rank(3, mesh, ("sum",)) if fits(x, shape, mesh)]
    few = Resharder(mesh, load_device("h200")).table(shape, 4, plain, plain)
    extra = [*plain, Layout.parse(["P(max)", "R", "P(max)"])]
    many = Resharder(mesh, load_device("h200")).table(shape, 4, extra, extra)
    for one, other in zip(few, many, strict=True):
        np.testing.assert_array_equal(one, other[: len(plain), : len(plain)])
