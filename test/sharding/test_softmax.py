"""Softmax and its kin: every strategy is right, over the normalised dimension too."""

from __future__ import annotations

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

from tensoropt.runtime.layout.mesh import Mesh

MESHES = [(2,), (4,), (2, 2)]
EVERY = {"R -> R", "S(0) -> S(0)", "S(1) -> S(1)", "S(2) -> S(2)"}


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
def test_softmax_splits_every_dimension(op_type: str) -> None:
    assert offered(Case(op_type, [normal(2, 4, 6)])) == EVERY


def test_hardmax_keeps_the_dimension_it_searches() -> None:
    assert offered(Case("Hardmax", [normal(2, 4, 6)], {"axis": 1})) == EVERY - {"S(1) -> S(1)"}
    assert offered(Case("Hardmax", [normal(2, 4, 6)], version=11)) == {"R -> R", "S(0) -> S(0)"}


@examples(30)
@given(
    mesh=st.sampled_from(MESHES),
    op_type=st.sampled_from(["Softmax", "LogSoftmax", "Hardmax"]),
    shape=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=3),
    axis=st.integers(-3, 2),
    version=st.sampled_from([11, 13, 18, 20]),
    default=st.booleans(),
)
def test_any_axis_of_any_opset(
    mesh: tuple[int, ...], op_type: str, shape: list[int], axis: int, version: int, default: bool
) -> None:
    default = default and len(shape) > 1
    attributes = {} if default else {"axis": max(-len(shape), min(axis, len(shape) - 1))}
    check(Case(op_type, [normal(*shape)], attributes, version=version), mesh)


def test_before_opset_13_all_dimensions_from_the_axis_are_one() -> None:
    old = check(Case("Softmax", [normal(2, 4, 6)], {"axis": 1}, version=11), (2,))
    new = check(Case("Softmax", [normal(2, 4, 6)], {"axis": 1}), (2,))
    assert old.offered == new.offered == EVERY
    assert [held.factors for held in old.rule.inner] == [(1, 2)] * 2
    assert [held.factors for held in new.rule.inner] == [(1,)] * 2


def test_before_opset_8_the_normalised_dimension_stays_whole() -> None:
    assert offered(Case("Softmax", [normal(4, 6)], version=7)) == {"R -> R", "S(0) -> S(0)"}


def test_large_values_do_not_overflow() -> None:
    x = normal(2, 8) * 1e4
    assert "S(1) -> S(1)" in offered(Case("Softmax", [x], {"axis": 1}))


def test_masked_parts_do_not_turn_into_no_number() -> None:
    x = normal(2, 8)
    x[:, :4] = -np.inf  # all that one rank holds
    assert "S(1) -> S(1)" in offered(Case("Softmax", [x], {"axis": 1}))


def test_narrow_types_are_added_up_in_float32() -> None:
    case = Case("Softmax", [normal(2, 64, dtype=np.float16)], {"axis": 1})
    report = check(case, (2,), rtol=2e-3, atol=1e-3)
    assert "S(1) -> S(1)" in report.offered
    assert [held.item_bytes for held in report.rule.inner] == [4, 4]


def test_a_symbolic_batch_stays_whole_beside_a_split_axis() -> None:
    hidden = frozenset({(0, 0)})
    case = Case("Softmax", [normal(2, 4, 6)], symbolic=hidden, symbolic_results=hidden)
    assert offered(case) == EVERY - {"S(0) -> S(0)"}


def test_two_all_reduces_inside_are_priced() -> None:
    report = check(Case("Softmax", [normal(4, 8, 6)], {"axis": 1}), (2, 2))
    by_text = dict(zip(map(str, (s.operands[0] for s in report.tried)), report.tried, strict=True))
    mesh = Mesh((2, 2))
    assert report.rule.inner_steps(by_text["[S(0), R]"], mesh) == []
    both = [("all_reduce", (0, 1), 4 * 6 * 4)] * 2
    assert report.rule.inner_steps(by_text["[S(1), S(1)]"], mesh) == both
    one = [("all_reduce", (1,), 2 * 6 * 4)] * 2
    assert report.rule.inner_steps(by_text["[S(0), S(1)]"], mesh) == one
