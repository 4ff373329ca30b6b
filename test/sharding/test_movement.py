"""Operators that move elements: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

MESHES = [(2,), (4,), (2, 2)]
INT64_MAX = 2**63 - 1


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def test_transpose_moves_the_splits() -> None:
    case = Case("Transpose", [normal(4, 6, 8)], {"perm": [2, 0, 1]})
    found = {"R -> R", "S(0) -> S(1)", "S(1) -> S(2)", "S(2) -> S(0)", "P(sum) -> P(sum)"}
    assert offered(case) == found
    assert "S(0) -> S(2)" in offered(Case("Transpose", [normal(4, 6, 8)]))


def test_flags_move_but_do_not_add_up() -> None:
    assert offered(Case("Transpose", [normal(4, 6) > 0])) == {
        "R -> R",
        "S(0) -> S(1)",
        "S(1) -> S(0)",
    }


def test_concat_keeps_its_axis_whole() -> None:
    operands = [normal(4, 2, 6), normal(4, 4, 6), normal(4, 6, 6)]
    found = {"R R R -> R", "S(0) S(0) S(0) -> S(0)", "S(2) S(2) S(2) -> S(2)"}
    partial = "P(sum) P(sum) P(sum) -> P(sum)"
    assert offered(Case("Concat", operands, {"axis": -2})) == found | {partial}


def test_concat_beside_a_symbolic_dimension() -> None:
    case = Case("Concat", [normal(4, 2), normal(4, 4)], {"axis": 1}, symbolic=frozenset({(1, 0)}))
    assert offered(case) == {"R R -> R", "P(sum) P(sum) -> P(sum)"}


@pytest.mark.parametrize(
    "case",
    [
        Case("Split", [normal(4, 6)], {"axis": 1, "num_outputs": 2}, results=(True,) * 2),
        Case("Split", [normal(4, 6), ints(2, 4)], {"axis": -1}, 13, results=(True,) * 2),
        Case("Split", [normal(4, 6)], {"axis": 1, "split": [2, 4]}, 11, results=(True,) * 2),
    ],
)
def test_split_keeps_its_axis_whole(case: Case) -> None:
    rest = " R" * (len(case.operands) - 1)
    assert offered(case) == {
        f"R{rest} -> R R",
        f"S(0){rest} -> S(0) S(0)",
        f"P(sum){rest} -> P(sum) P(sum)",
    }


def slice_case(bounds: dict[str, Any], literals: frozenset[int] = frozenset(range(1, 5))) -> Case:
    operands = [ints(*bounds[name]) if name in bounds else None for name in SLICE_OPERANDS]
    return Case("Slice", [normal(4, 6, 8), *operands], literals=literals)


SLICE_OPERANDS = ("starts", "ends", "axes", "steps")


@pytest.mark.parametrize(
    ("bounds", "split"),
    [
        ({"starts": [2], "ends": [INT64_MAX], "axes": [2]}, {0, 1}),
        ({"starts": [0], "ends": [INT64_MAX], "axes": [2]}, {0, 1, 2}),
        ({"starts": [0], "ends": [8], "axes": [-1]}, {0, 1, 2}),
        ({"starts": [-8], "ends": [8], "axes": [2]}, {0, 1, 2}),
        ({"starts": [-9], "ends": [9], "axes": [2]}, {0, 1, 2}),
        ({"starts": [0], "ends": [-1], "axes": [2]}, {0, 1}),
        ({"starts": [0, 1], "ends": [4, 5]}, {0, 2}),
        ({"starts": [0], "ends": [8], "axes": [2], "steps": [2]}, {0, 1, 2}),
        ({"starts": [-1], "ends": [-9], "axes": [2], "steps": [-1]}, {0, 1}),
        ({"starts": [0], "ends": [8], "axes": [2], "steps": [1]}, {0, 1, 2}),
    ],
)
def test_slice_splits_what_it_takes_whole(bounds: dict[str, Any], split: set[int]) -> None:
    found = offered(slice_case(bounds), (2,))
    splits = {f"S({dim}) R R R R -> S({dim})" for dim in split}
    assert found == splits | {"R R R R R -> R", "P(sum) R R R R -> P(sum)"}


def test_slice_with_unknown_bounds_of_a_known_result() -> None:
    bounds = {"starts": [0, 1], "ends": [INT64_MAX, 5], "axes": [2, 1]}
    found = offered(slice_case(bounds, frozenset()))
    assert {text for text in found if "S" in text} == {
        "S(0) R R R R -> S(0)",
        "S(2) R R R R -> S(2)",
    }


@pytest.mark.parametrize("literals", [frozenset({4}), frozenset({3})])
def test_slice_that_may_go_backward_is_declined(literals: frozenset[int]) -> None:
    bounds = {"starts": [-1], "ends": [-9], "axes": [2], "steps": [-1]}
    assert offered(slice_case(bounds, literals)) == {"R R R R R -> R"}


def test_slice_forward_by_unknown_axes() -> None:
    bounds = {"starts": [1], "ends": [7], "axes": [2], "steps": [2]}
    assert "S(1) R R R R -> S(1)" in offered(slice_case(bounds, frozenset({4})))


def test_slice_with_attributes() -> None:
    attributes = {"starts": [0, 1], "ends": [4, 3], "axes": [0, 1]}
    case = Case("Slice", [normal(4, 6, 8)], attributes, version=9)
    splits = {"S(0) -> S(0)", "S(2) -> S(2)"}
    assert offered(case) == splits | {"R -> R", "P(sum) -> P(sum)"}
    without_axes = Case("Slice", [normal(4, 6)], {"starts": [1], "ends": [3]}, version=9)
    assert "S(1) -> S(1)" in offered(without_axes)


@examples(30)
@given(
    bounds=st.lists(
        st.tuples(st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([-2, -1, 1, 2])),
        min_size=3,
        max_size=3,
    ),
    order=st.permutations([0, 1, 2]),
    count=st.integers(1, 3),
    mesh=st.sampled_from(MESHES),
)
def test_slices_of_any_bounds(
    bounds: list[tuple[int, int, int]], order: list[int], count: int, mesh: tuple[int, ...]
) -> None:
    columns = dict(
        zip(("starts", "ends", "steps"), map(list, zip(*bounds, strict=True)), strict=True)
    )
    held = {name: values[:count] for name, values in columns.items()}
    check(slice_case({**held, "axes": order[:count]}), mesh)


@pytest.mark.parametrize(
    ("mode", "value", "linear"),
    [
        ("constant", None, True),
        ("constant", 0.0, True),
        ("constant", 2.0, False),
        ("edge", None, True),
        ("reflect", None, True),
    ],
)
def test_pad_splits_what_it_does_not_pad(mode: str, value: float | None, linear: bool) -> None:
    fill = [] if value is None else [np.array(value, np.float32)]
    case = Case(
        "Pad",
        [normal(2, 4, 6), ints(0, 0, 1, 0, 0, 2), *fill],
        {"mode": mode},
        literals=frozenset(range(1, 2 + len(fill))),
    )
    rest = " R" * (1 + len(fill))
    partial = {f"P(sum){rest} -> P(sum)"} if linear else set()
    assert offered(case) == partial | {
        f"R{rest} -> R",
        f"S(0){rest} -> S(0)",
        f"S(1){rest} -> S(1)",
    }


def test_pad_with_axes_or_unknown_pads() -> None:
    operands = [normal(2, 4, 6), ints(1, 1), None, ints(-1)]
    known = offered(Case("Pad", operands, literals=frozenset({3})))
    assert {text for text in known if "S" in text} == {
        "S(0) R R R -> S(0)",
        "S(1) R R R -> S(1)",
    }
    assert offered(Case("Pad", operands)) == {"R R R R -> R"}


def test_pad_with_an_unknown_value_is_not_linear() -> None:
    operands = [normal(2, 4), ints(0, 1, 0, 0), np.array(0, np.float32)]
    found = offered(Case("Pad", operands, literals=frozenset({1})))
    assert found == {"R R R -> R", "S(0) R R -> S(0)"}


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_pad_with_attributes(value: float) -> None:
    attributes = {"pads": [0, 1, 0, 0], "value": value}
    found = offered(Case("Pad", [normal(2, 4)], attributes, version=9))
    assert ("P(sum) -> P(sum)" in found) == (value == 0.0)
    assert "S(0) -> S(0)" in found
    assert "S(1) -> S(1)" not in found


def test_cumsum_splits_the_other_dimensions() -> None:
    case = Case("CumSum", [normal(4, 6, 8), np.array(-2)], literals=frozenset({1}))
    assert offered(case) == {
        "R R -> R",
        "S(0) R -> S(0)",
        "S(2) R -> S(2)",
        "P(sum) R -> P(sum)",
    }
    assert offered(Case("CumSum", [normal(4, 6), np.array(0)])) == {"R R -> R"}


@pytest.mark.parametrize("upper", [0, 1])
def test_trilu_splits_the_batch(upper: int) -> None:
    case = Case("Trilu", [normal(4, 6, 6)], {"upper": upper})
    assert offered(case) == {"R -> R", "S(0) -> S(0)", "P(sum) -> P(sum)"}


def test_reverse_sequence_keeps_time_whole() -> None:
    case = Case("ReverseSequence", [normal(4, 6, 8), ints(1, 2, 3, 4, 4, 3)])
    assert offered(case) == {
        "R R -> R",
        "S(1) S(0) -> S(1)",
        "S(2) R -> S(2)",
        "P(sum) R -> P(sum)",
    }


@pytest.mark.parametrize("name", ["CumSum", "CumProd"])
def test_products_of_partial_sums_do_not_add_up(name: str) -> None:
    case = Case(name, [normal(4, 6), np.array(0)], {}, 26, literals=frozenset({1}))
    linear = {"P(sum) R -> P(sum)"} if name == "CumSum" else set()
    assert offered(case) == {"R R -> R", "S(1) R -> S(1)"} | linear


def test_dimensions_without_a_new_size_stay() -> None:
    operands = [normal(4, 6, 2), np.array([3, 8])]
    case = Case("CenterCropPad", operands, {"axes": [1, 2]}, literals=frozenset({1}))
    assert offered(case) == {"R R -> R", "S(0) R -> S(0)", "P(sum) R -> P(sum)"}
    whole = Case("CenterCropPad", [normal(4, 6), np.array([2, 8])])
    assert offered(whole) == {"R R -> R", "P(sum) R -> P(sum)"}


@pytest.mark.parametrize("mesh", [(2,), (4,), (2, 2)])
@pytest.mark.parametrize("by", [1, -1, 3])
def test_what_is_shifted_goes_on_in_the_next_part(by: int, mesh: tuple[int, ...]) -> None:
    pads, fill = np.array([0, by, -by, 1, 0, -by, by, 0]), np.array(1.5, np.float32)
    case = Case("Pad", [normal(2, 8, 8, 3), pads, fill], literals=frozenset({1, 2}))
    found = {text.partition(" ")[0] for text in check(case, mesh).offered}
    parts = 8 // math.prod(mesh)
    both = {",".join([f"S({dim})"] * len(mesh)) for dim in (1, 2)}
    assert (both <= found) == (abs(by) <= parts)


@pytest.mark.parametrize("mesh", [(2,), (2, 2)])
@pytest.mark.parametrize("start", [0, 1, 2])
def test_one_of_every_few_is_there_in_each_part(start: int, mesh: tuple[int, ...]) -> None:
    """As `gate | up` that alternate in GPT-OSS; the last dimension begins one step later."""
    bounds = [np.array(held) for held in ([start, 2], [start + 10, 9], [1, 2], [3, 2])]
    case = Case("Slice", [normal(2, 12, 8), *bounds], literals=frozenset({1, 2, 3, 4}))
    found = {text.partition(" ")[0] for text in check(case, mesh).offered}
    assert ",".join(["S(1)"] * len(mesh)) in found
    assert not any("S(2)" in text for text in found)
