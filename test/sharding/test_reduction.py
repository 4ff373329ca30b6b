"""Reductions: every strategy is right, and reduced dimensions leave partial results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

MESHES = [(2,), (4,), (2, 2)]
SUMS = ["ReduceSum", "ReduceMean", "ReduceSumSquare", "ReduceL1"]
INSIDE = ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"]
EVERY = [*SUMS, *INSIDE, "ReduceMax", "ReduceMin", "ReduceProd"]


def reduction(
    op_type: str, x: Any, axes: list[int] | None, version: int = 20, **attributes: int
) -> Case:
    """Return a reduction with its axes where the opset has them."""
    operand = version >= (13 if op_type == "ReduceSum" else 18)
    if axes is None:
        return Case(op_type, [x], attributes, version=version)
    if not operand:
        return Case(op_type, [x], {**attributes, "axes": axes}, version=version)
    literals = frozenset({1})
    held = np.array(axes, np.int64)
    return Case(op_type, [x, held], attributes, version=version, literals=literals)


def shape_of(case: Case) -> str:
    return " R" * (len(case.operands) - 1)


@pytest.mark.parametrize("version", [11, 13, 18, 20])
@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMean"])
def test_sums_and_means_leave_partial_sums_and_pass_them(op_type: str, version: int) -> None:
    case = reduction(op_type, normal(4, 6, 8), [1], version, keepdims=0)
    r = shape_of(case)
    assert offered(case) == {
        f"R{r} -> R",
        f"S(0){r} -> S(0)",
        f"S(1){r} -> P(sum)",
        f"S(2){r} -> S(1)",
        f"P(sum){r} -> P(sum)",
    }


@pytest.mark.parametrize(
    ("op_type", "partial"),
    [
        ("ReduceSumSquare", "P(sum)"),
        ("ReduceL1", "P(sum)"),
        ("ReduceMax", "P(max)"),
        ("ReduceMin", "P(min)"),
        ("ReduceL2", "R"),
        ("ReduceLogSum", "R"),
        ("ReduceLogSumExp", "R"),
    ],
)
def test_what_a_split_reduced_dimension_leaves(op_type: str, partial: str) -> None:
    x = np.abs(normal(4, 6))
    found = offered(reduction(op_type, x, [-1]))
    assert found == {"R R -> R", "S(0) R -> S(0)", f"S(1) R -> {partial}"}


def test_no_collective_multiplies() -> None:
    found = offered(reduction("ReduceProd", normal(4, 6), [1]))
    assert found == {"R R -> R", "S(0) R -> S(0)"}


@examples(40)
@given(
    mesh=st.sampled_from(MESHES),
    op_type=st.sampled_from(EVERY),
    shape=st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3),
    axes=st.none() | st.sets(st.integers(0, 2)),
    negative=st.booleans(),
    keepdims=st.integers(0, 1),
    noop=st.integers(0, 1),
    version=st.sampled_from([11, 13, 18, 20]),
)
def test_any_axes_of_any_opset(
    mesh: tuple[int, ...],
    op_type: str,
    shape: list[int],
    axes: set[int] | None,
    negative: bool,
    keepdims: int,
    noop: int,
    version: int,
) -> None:
    rank = len(shape)
    held = None if axes is None else sorted(a - rank * negative for a in axes if a < rank)
    attributes = {"keepdims": keepdims}
    if version >= 18 or (op_type == "ReduceSum" and version >= 13):
        attributes["noop_with_empty_axes"] = noop
    elif not held:
        held = None
    x = np.abs(normal(*shape)) + np.float32(0.1)
    check(reduction(op_type, x, held, version, **attributes), mesh)


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMax", "ReduceMin"])
def test_whole_numbers(op_type: str) -> None:
    x = np.arange(24, dtype=np.int64).reshape(4, 6)
    partial = {"ReduceSum": "P(sum)", "ReduceMax": "P(max)", "ReduceMin": "P(min)"}[op_type]
    assert f"S(1) R -> {partial}" in offered(reduction(op_type, x, [1]))


def test_means_of_whole_numbers_are_rounded_so_they_do_not_add_up() -> None:
    x = np.arange(24, dtype=np.int32).reshape(4, 6)
    assert offered(reduction("ReduceMean", x, [1])) == {"R R -> R", "S(0) R -> S(0)"}


def test_truth_values_have_no_partial_maximum() -> None:
    x = normal(4, 6) > 0
    assert offered(reduction("ReduceMax", x, [1])) == {"R R -> R", "S(0) R -> S(0)"}


def test_axes_that_only_the_running_model_knows_decline() -> None:
    case = Case("ReduceSum", [normal(4, 6), np.array([1], np.int64)])
    assert offered(case) == {"R R -> R"}
    for op_type in EVERY:
        assert len(offered(Case(op_type, [normal(4, 6) ** 2, np.array([1], np.int64)]))) == 1


def test_a_symbolic_reduced_dimension_stays_whole() -> None:
    hidden = frozenset({(0, 1)})
    case = Case("ReduceMean", [normal(4, 6)], {"axes": [1]}, version=13, symbolic=hidden)
    assert offered(case) == {"R -> R", "S(0) -> S(0)", "P(sum) -> P(sum)"}


@pytest.mark.parametrize("value", [-np.inf, np.inf])
def test_the_logarithm_of_infinite_sums(value: float) -> None:
    x = np.full((2, 4), value, np.float32)
    assert "S(1) R -> R" in offered(reduction("ReduceLogSumExp", x, [1]))


def test_narrow_types_are_added_up_in_float32() -> None:
    x = np.abs(normal(2, 64, dtype=np.float16))
    report = check(reduction("ReduceL2", x, [1], keepdims=0), (4,), rtol=2e-3)
    assert [held.item_bytes for held in report.rule.inner] == [4]


def test_work_is_one_per_element() -> None:
    assert check(reduction("ReduceSum", normal(4, 6), [1]), (2,)).flops == 24
    assert check(reduction("ReduceL2", normal(4, 6), [1]), (2,)).flops == 48
