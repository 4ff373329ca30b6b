"""Expand and Tile: every strategy is right, and what broadcasting creates can be split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.compiler.sharding.rule.registry import rule_for

MESHES = [(2,), (4,), (2, 2)]
LITERAL = frozenset({1})


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


@pytest.mark.parametrize("literals", [LITERAL, frozenset()])
def test_expand_splits_what_it_creates(literals: frozenset[int]) -> None:
    case = Case("Expand", [normal(8, 1), ints(4, 8, 6)], literals=literals)
    assert offered(case) == {
        "R R -> R",
        "R R -> S(0)",
        "S(0) R -> S(1)",
        "R R -> S(2)",
        "P(sum) R -> P(sum)",
    }


def test_expand_by_fewer_dimensions_than_there_are() -> None:
    case = Case("Expand", [normal(4, 8, 1), ints(1, 6)], literals=LITERAL)
    assert {"S(0) R -> S(0)", "S(1) R -> S(1)", "R R -> S(2)"} <= offered(case)


@pytest.mark.parametrize("literals", [LITERAL, frozenset()])
def test_expand_with_a_symbolic_dimension(literals: frozenset[int]) -> None:
    case = Case(
        "Expand",
        [normal(5, 1, 8), ints(5, 4, 8)],
        literals=literals,
        symbolic=frozenset({(0, 0)}),
        symbolic_results=frozenset({(0, 0)}),
    )
    splits = {"R R -> S(1)", "S(2) R -> S(2)"}
    assert offered(case) == splits | {"R R -> R", "P(sum) R -> P(sum)"}


@pytest.mark.parametrize("literals", [LITERAL, frozenset()])
def test_expand_by_fewer_entries_than_symbolic_dimensions(literals: frozenset[int]) -> None:
    case = Case(
        "Expand",
        [normal(5, 3, 1), ints(1, 6)],
        literals=literals,
        symbolic=frozenset({(0, 0), (0, 1)}),
        symbolic_results=frozenset({(0, 0), (0, 1)}),
    )
    assert offered(case) == {"R R -> R", "R R -> S(2)", "P(sum) R -> P(sum)"}


def test_expand_of_a_dimension_that_may_be_one() -> None:
    case = Case("Expand", [normal(1, 8), ints(4, 8)], symbolic=frozenset({(0, 0)}))
    assert offered(case) == {"R R -> R", "S(1) R -> S(1)", "P(sum) R -> P(sum)"}


def test_expand_to_an_unknown_number_of_dimensions_is_declined() -> None:
    case = Case(
        "Expand",
        [normal(4), ints(2, 4)],
        symbolic=frozenset({(1, 0)}),
        symbolic_results=frozenset({(0, 0)}),
    )
    assert offered(case) == {"R R -> R"}


@pytest.mark.parametrize("literals", [LITERAL, frozenset()])
def test_tile_splits_the_repetitions(literals: frozenset[int]) -> None:
    case = Case("Tile", [normal(8, 3, 2), ints(1, 1, 6)], literals=literals)
    assert offered(case) == {
        "R R -> R",
        "S(0) R -> S(0)",
        "R R -> S(2)",
        "P(sum) R -> P(sum)",
    }


def test_tile_of_a_symbolic_dimension() -> None:
    hidden = frozenset({(0, 0)})
    case = Case("Tile", [normal(5, 4), ints(2, 2)], symbolic=hidden, symbolic_results=hidden)
    assert offered(case) == {"R R -> R", "R R -> S(1)", "P(sum) R -> P(sum)"}


def test_tile_by_an_axis_is_declined() -> None:
    source, result = TensorInfo((4, 6), "float32", 4), TensorInfo((4, 12), "float32", 4)
    scalar = TensorInfo((), "int64", 8)
    rule = rule_for(OpInfo("Tile", 1, (source, scalar, scalar), (result,)))
    assert not any(factor.can_split for factor in rule.factors)


def test_unknown_sizes_before_where_are_declined() -> None:
    hidden = frozenset({(0, 0)})
    case = Case(
        "Expand",
        [normal(5, 8), ints(5, 8)],
        version=8,
        symbolic=hidden,
        symbolic_results=hidden,
    )
    assert offered(case) == {"R R -> R"}


@examples(30)
@given(
    sizes=st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4),
    ones=st.lists(st.booleans(), min_size=4, max_size=4),
    skip=st.integers(0, 3),
    asks=st.lists(st.booleans(), min_size=4, max_size=4),
    literal=st.booleans(),
    mesh=st.sampled_from(MESHES),
)
def test_expand_of_any_shape(
    sizes: list[int],
    ones: list[bool],
    skip: int,
    asks: list[bool],
    literal: bool,
    mesh: tuple[int, ...],
) -> None:
    source = [1 if one else size for size, one in zip(sizes, ones, strict=False)][skip:]
    wanted = [size if ask else 1 for size, ask in zip(sizes, asks, strict=False)]
    case = Case(
        "Expand", [normal(*source), ints(*wanted)], literals=LITERAL if literal else frozenset()
    )
    check(case, mesh)


@examples(30)
@given(
    pairs=st.lists(
        st.tuples(st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 4])),
        min_size=1,
        max_size=3,
    ),
    literal=st.booleans(),
    mesh=st.sampled_from(MESHES),
)
def test_tile_of_any_shape(
    pairs: list[tuple[int, int]], literal: bool, mesh: tuple[int, ...]
) -> None:
    sizes, repeats = zip(*pairs, strict=True)
    held = LITERAL if literal else frozenset[int]()
    check(Case("Tile", [normal(*sizes), ints(*repeats)], literals=held), mesh)
