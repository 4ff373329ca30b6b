"""ArgMax and ArgMin: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

from tensoropt.runtime.layout.mesh import Mesh

MESHES = [(2,), (4,), (2, 2)]
NAMES = ["ArgMax", "ArgMin"]


@pytest.mark.parametrize("name", NAMES)
def test_the_searched_dimension_splits_too(name: str) -> None:
    assert offered(Case(name, [normal(4, 6)])) == {"R -> R", "S(0) -> R", "S(1) -> S(1)"}
    flat = Case(name, [normal(4, 6)], {"keepdims": 0, "axis": 1})
    assert offered(flat) == {"R -> R", "S(0) -> S(0)", "S(1) -> R"}


@pytest.mark.parametrize("name", NAMES)
def test_what_ranks_do_not_compare_stays_whole(name: str) -> None:
    assert offered(Case(name, [normal(4, 6)], version=11)) == {"R -> R", "S(1) -> S(1)"}
    bytes_ = np.random.default_rng(0).integers(0, 9, (4, 6), np.uint8)
    assert offered(Case(name, [bytes_])) == {"R -> R", "S(1) -> S(1)"}


@examples(50)
@given(
    mesh=st.sampled_from(MESHES),
    name=st.sampled_from(NAMES),
    dtype=st.sampled_from([np.float32, np.float64, np.int32]),
    shape=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=3),
    axis=st.integers(-3, 2),
    keeps=st.booleans(),
    last=st.booleans(),
    values=st.sampled_from([1, 2, 50]),
)
def test_any_search(
    mesh: tuple[int, ...], name: str, dtype: Any, shape: list[int], axis: int, keeps: bool,
    last: bool, values: int,
) -> None:  # fmt: skip
    axis = max(-len(shape), min(axis, len(shape) - 1))
    x = np.random.default_rng(values).integers(0, values, shape).astype(dtype)  # many are equal
    attributes = {"axis": axis, "keepdims": int(keeps), "select_last_index": int(last)}
    check(Case(name, [x], attributes), mesh)


def test_infinities_are_compared_as_other_numbers() -> None:
    x = normal(2, 8)
    x[0, 5], x[1, :] = np.inf, -np.inf
    check(Case("ArgMax", [x], {"axis": 1}), (4,))


def test_two_all_reduces_are_priced() -> None:
    report = check(Case("ArgMax", [normal(4, 6)], {"axis": 1}), (2,))
    priced = {s.operands[0].texts[0]: report.rule.inner_steps(s, Mesh((2,)))
              for s in report.tried}  # fmt: skip
    assert priced == {"R": [], "S(0)": [], "S(1)": [("all_reduce", (0,), 4 * n) for n in (4, 8)]}
