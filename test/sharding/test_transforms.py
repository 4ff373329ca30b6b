"""Transforms over whole dimensions: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

import math

import numpy as np
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

MESHES = [(2,), (4,), (2, 2)]


def test_the_transformed_dimension_stays_whole() -> None:
    case = Case("DFT", [normal(2, 4, 6, 1), None, np.array(1)], literals=frozenset({2}))
    assert offered(case) == {
        "R R R -> R",
        "S(0) R R -> S(0)",
        "S(2) R R -> S(2)",
        "P(sum) R R -> P(sum)",
    }
    default = offered(Case("DFT", [normal(2, 4, 6, 2)]))
    assert "S(1) -> S(1)" in default
    assert "S(2) -> S(2)" not in default
    assert "S(2) -> S(2)" in offered(Case("DFT", [normal(2, 4, 6, 2)], version=17))
    assert offered(Case("DFT", [normal(2, 4, 6, 2), None, np.array(1)])) == {"R R R -> R"}


@examples(30)
@given(
    mesh=st.sampled_from(MESHES),
    axis=st.sampled_from([-2, -3, 0, 1]),
    parts=st.sampled_from([1, 2]),
    kind=st.sampled_from(["", "onesided", "inverse"]),
    length=st.sampled_from([None, 3, 8]),
)
def test_any_transform(
    mesh: tuple[int, ...], axis: int, parts: int, kind: str, length: int | None
) -> None:
    parts = {"onesided": 1, "inverse": 2}.get(kind, parts)
    operands = [
        normal(4, 2, 4, parts),
        None if length is None else np.array(length),
        np.array(axis),
    ]
    attributes = {kind: 1} if kind else {}
    check(Case("DFT", operands, attributes, literals=frozenset({2})), mesh)


def test_signals_of_a_batch() -> None:
    operands = [normal(4, 16, 1), np.array(4), normal(8), np.array(8)]
    for mesh in MESHES:
        check(Case("STFT", operands), mesh)
    assert offered(Case("STFT", operands)) == {
        "R R R R -> R",
        "S(0) R R R -> S(0)",
        "P(sum) R R R -> P(sum)",
    }


def test_determinants_split_in_front_of_the_matrices() -> None:
    case = Case("Det", [normal(2, 4, 3, 3)])
    assert offered(case) == {"R -> R", "S(0) -> S(0)", "S(1) -> S(1)"}
    assert math.isclose(check(case, (2,)).flops, 8 * 2 / 3 * 27)
    assert offered(Case("Det", [normal(3, 3)])) == {"R -> R"}


@examples(20)
@given(
    mesh=st.sampled_from(MESHES),
    batch=st.sampled_from([1, 4]),
    channels=st.sampled_from([1, 3, 4]),
    stride=st.sampled_from([1, 2]),
)
def test_any_image_of_columns(
    mesh: tuple[int, ...], batch: int, channels: int, stride: int
) -> None:
    columns = ((5 - 2) // stride + 1) ** 2
    operands = [normal(batch, channels * 4, columns), np.array([5, 5]), np.array([2, 2])]
    check(Case("Col2Im", operands, {"strides": [stride] * 2}), mesh)


def test_columns_split_by_channels() -> None:
    operands = [normal(2, 4 * 4, 16), np.array([5, 5]), np.array([2, 2])]
    assert offered(Case("Col2Im", operands)) == {
        "R R R -> R",
        "S(0) R R -> S(0)",
        "S(1) R R -> S(1)",
        "P(sum) R R -> P(sum)",
    }
