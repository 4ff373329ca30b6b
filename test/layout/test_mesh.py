"""Meshes: coordinates, groups, factorisations and their text."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.compiler.layout.mesh import (
    count_layouts,
    factorisations,
    grouped,
    is_grouped,
    parse_mesh,
)
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout.mesh import Mesh

meshes = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(lambda shape: Mesh(tuple(shape)))


@st.composite
def mesh_and_axes(draw: st.DrawFn) -> tuple[Mesh, tuple[int, ...]]:
    mesh = draw(meshes)
    return mesh, tuple(sorted(draw(st.sets(st.sampled_from(mesh.axes)))))


@given(meshes)
def test_rank_inverts_coordinates(mesh: Mesh) -> None:
    assert [mesh.rank(mesh.coordinates(rank)) for rank in range(mesh.size)] == [*range(mesh.size)]


@given(mesh_and_axes())
def test_groups_partition_the_ranks_in_order(case: tuple[Mesh, tuple[int, ...]]) -> None:
    mesh, axes = case
    groups = {mesh.group(rank, axes) for rank in range(mesh.size)}
    assert sorted(rank for group in groups for rank in group) == [*range(mesh.size)]
    for group in groups:
        assert [mesh.linear(rank, axes) for rank in group] == [*range(mesh.extent(axes))]


def test_ranks_are_row_major() -> None:
    mesh = Mesh((2, 3))
    assert mesh.coordinates(4) == (1, 1)
    assert mesh.group(4, (0,)) == (1, 4)
    assert mesh.group(4, (1,)) == (3, 4, 5)
    assert str(mesh) == "2x3"


@given(st.integers(1, 48))
def test_factorisations_are_distinct_and_complete(devices: int) -> None:
    found = list(factorisations(devices))
    assert len(set(found)) == len(found) == _ordered_factorisations(devices)
    assert all(mesh.size == devices for mesh in found)
    assert all(extent > 1 for mesh in found for extent in mesh.shape) or devices == 1


def _ordered_factorisations(n: int) -> int:
    """Return how many ways there are; one for 1 (OEIS A074206)."""
    return 1 if n == 1 else sum(_ordered_factorisations(d) for d in range(1, n) if n % d == 0)


@given(st.lists(st.sampled_from([1, 2, 2, 3]), min_size=1, max_size=6).map(tuple))
def test_deep_meshes_have_at_most_two_groups_of_axes(shape: tuple[int, ...]) -> None:
    mesh, placements = Mesh(shape), "RSP"
    own = [placements if extent > 1 else "R" for extent in shape]
    every = list(itertools.product(*own))
    wide = [[p for p, extent in zip(held, shape, strict=True) if extent > 1] for held in every]
    few = [sum(a != b for a, b in itertools.pairwise(held)) <= 1 for held in wide]
    deep = sum(extent > 1 for extent in shape) > 3
    assert list(grouped(mesh, own)) == [
        h for h, ok in zip(every, few, strict=True) if ok or not deep
    ]
    assert [is_grouped(mesh, held) for held in every] == [ok or not deep for ok in few]
    assert count_layouts(mesh, 3) == len(list(grouped(mesh, own)))


def test_mesh_text() -> None:
    assert parse_mesh("2x4") == parse_mesh("2X4", devices=8) == Mesh((2, 4))
    assert math.prod(parse_mesh("16").shape) == 16


@pytest.mark.parametrize("text", ["", "2x", "0x2", "-2x2", "axb", "2*4"])
def test_wrong_mesh_text(text: str) -> None:
    with pytest.raises(UserError, match="--mesh: expected positive sizes such as 2x4, got: '"):
        parse_mesh(text)


def test_mesh_of_the_wrong_size() -> None:
    expected = r"--mesh: 2x2 has 4 ranks, expected 8 as in 8, 2x4, 2x2x2, 4x2, got: '2x2'"
    with pytest.raises(UserError, match=expected):
        parse_mesh("2x2", devices=8)
