"""Cutting global arrays by layout, and putting the parts together again."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.compiler.layout.layouts import fits
from tensoropt.compiler.reshard.steps import layouts_of_rank
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.layout.mesh_layout import MeshLayout, gather_global, parse_layout
from tensoropt.runtime.support.errors import UserError

MESH = (2, 3)


PAIRS = [
    *itertools.product(["R", "S(0)", "S(1)"], repeat=2),
    *itertools.product(["R", "S(0 of 2)", "S(1 of 2+1)"], repeat=2),
    *itertools.product(["R", "S(0 in 6)", "S(1 in 9)"], repeat=2),
]


@pytest.mark.parametrize("texts", PAIRS)
def test_cut_and_gather_are_inverse(texts: tuple[str, str]) -> None:
    whole = np.arange(12 * 18 * 2).reshape(12, 18, 2)
    layout = parse_layout(texts, MESH).for_shape(whole.shape)
    parts = {rank: layout.local_slice(whole, rank) for rank in range(6)}
    assert all(part.shape == layout.local_shape(whole.shape) for part in parts.values())
    for copy in range(layout.copies):
        needed = {rank: parts.pop(rank) for rank in layout.sources(copy)}
        assert np.array_equal(gather_global(needed, layout, copy), whole)
    assert not parts


@given(st.lists(st.integers(1, 400), min_size=2, max_size=2), st.data())
def test_shapes_fit_that_the_compiler_accepts(shape: list[int], data: st.DataObject) -> None:
    texts = [data.draw(st.sampled_from(["R", "S(0)", "S(1)"])) for _ in MESH]
    layout = parse_layout(texts, MESH).for_shape(shape)
    if not fits(layout.layout, shape, layout.mesh):
        with pytest.raises(UserError):
            layout.check(shape)
        return
    whole = np.arange(shape[0] * shape[1]).reshape(shape)
    parts = {rank: layout.local_slice(whole, rank) for rank in layout.sources()}
    assert {part.shape for part in parts.values()} == {layout.local_shape(shape)}
    assert np.array_equal(gather_global(parts, layout), whole)


def test_any_order_of_axes_cuts_and_gathers() -> None:
    mesh, whole = Mesh((2, 3, 2)), np.arange(24 * 12).reshape(24, 12)
    layouts = layouts_of_rank(2, mesh, ())
    assert any(layout.turned for layout in layouts)
    for layout in (MeshLayout(mesh, layout) for layout in layouts):
        parts = {rank: layout.local_slice(whole, rank) for rank in layout.sources()}
        assert np.array_equal(gather_global(parts, layout), whole)


def test_padding_is_zeros_and_belongs_to_nothing() -> None:
    layout = parse_layout(["R", "S(0)"], MESH).for_shape([100, 2])
    whole = np.arange(200).reshape(100, 2) + 1
    parts = {rank: layout.local_slice(whole, rank) for rank in range(3)}
    assert [part.shape for part in parts.values()] == [(34, 2)] * 3
    assert not parts[2][32:].any()
    parts[2][32:] = -1
    assert layout.global_shape((34, 2)) == (100, 2)
    assert np.array_equal(gather_global(parts, layout), whole)


def test_parts_have_whole_units() -> None:
    layout = parse_layout(["S(0 in 5)", "R"], MESH).for_shape([20, 2])
    whole = np.arange(40).reshape(20, 2) + 1
    parts = {rank: layout.local_slice(whole, rank) for rank in layout.sources()}
    assert [part.shape for part in parts.values()] == [(12, 2)] * 2
    assert layout.real(parts[3], whole.shape, 3).shape == (8, 2) and not parts[3][8:].any()
    assert np.array_equal(gather_global(parts, layout), whole)
    with pytest.raises(UserError, match="0 does not divide into 2 parts of 5 units, got: 18"):
        parse_layout(["S(0 in 5)", "R"], MESH).check([18, 2])


def test_a_symbolic_size_has_no_padding() -> None:
    layout = parse_layout(["R", "S(0)"], MESH).for_shape(["batch", 2])
    with pytest.raises(UserError, match="dimension 0 does not divide into 3 parts, got: 100"):
        layout.check([100, 2])


def test_axes_split_major_to_minor() -> None:
    layout = parse_layout(["S(0)", "S(0)"], MESH)
    parts = [layout.local_slice(np.arange(6), rank).item() for rank in range(6)]
    assert parts == [0, 1, 2, 3, 4, 5]


def test_a_replica_is_taken_once() -> None:
    assert parse_layout(["R", "S(0)"], MESH).sources() == (0, 1, 2)
    assert parse_layout(["S(0)", "R"], MESH).sources() == (0, 3)
    assert parse_layout(["R", "R"], MESH).sources() == (0,)


@pytest.mark.parametrize(("reduction", "expected"), [("sum", 15), ("max", 5), ("min", 0)])
def test_partial_results_are_reduced(reduction: str, expected: int) -> None:
    layout = parse_layout([f"P({reduction})"] * 2, MESH)
    parts = {rank: np.array([rank]) for rank in range(6)}
    assert gather_global(parts, layout).item() == expected


def test_partial_beside_a_shard() -> None:
    layout = parse_layout(["P(sum)", "S(0)"], MESH)
    parts = {rank: np.array([rank]) for rank in range(6)}
    assert gather_global(parts, layout).tolist() == [0 + 3, 1 + 4, 2 + 5]


def test_scalars_and_empty_arrays() -> None:
    replicated = parse_layout(["R", "R"], MESH)
    assert replicated.local_slice(np.array(3.0), 5).shape == ()
    cut = parse_layout(["S(1)", "R"], MESH)
    assert cut.local_slice(np.zeros((0, 4)), 1).shape == (0, 2)


@pytest.mark.parametrize(
    ("texts", "shape", "message"),
    [
        (["R"], (4,), "layout R: expected 2 placements, one per mesh axis, got: 1"),
        (["R", "S(x)"], (4,), "placement: expected R, S(<dim>) or P(sum|max|min), got: 'S(x)'"),
        (["P(sum)", "P(max)"], (4,), "expected partial axes of one reduction"),
        (["S(1)", "R"], (4,), "layout shards dimension 1, expected one of 1 dimensions"),
        (["R", "S(0)"], (4,), "dimension 0 does not divide into 3 parts, got: 4"),
        (["S(0)", "S(0)"], (9,), "dimension 0 does not divide into 6 parts, got: 9"),
    ],
)
def test_what_does_not_fit(texts: list[str], shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(UserError) as error:
        parse_layout(texts, MESH).check(shape)
    assert message in str(error.value)


def test_a_partial_layout_has_no_slices() -> None:
    with pytest.raises(UserError, match="a partial layout has no slices, expected R or S"):
        parse_layout(["P(sum)", "R"], MESH).local_slice(np.zeros(6), 0)
