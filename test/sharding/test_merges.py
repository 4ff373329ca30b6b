"""Dimensions that merge samples with heads: split by either, on every op that passes them on."""

from __future__ import annotations

import numpy as np
import pytest
from sharding.harness import Array, Case, normal, offered

from tensoropt.compiler.layout.rule import Sections

_TWO = (1, 1)
"""A block for each of two samples."""


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def _at(*places: tuple[int, int]) -> Sections:
    return tuple((*place, _TWO) for place in places)


CASES = [
    (
        "apart",
        Case("Reshape", [normal(2, 4, 3, 6), ints(8, 3, 6)], literals=frozenset((1,)),
             merges=_at((2, 0))),
        {"S(0) R -> S(0)", "S(1) R -> S(0 of 2)"},
    ),
    (
        "back",
        Case("Reshape", [normal(8, 3, 6), ints(2, 4, 3, 6)], literals=frozenset((1,)),
             merges=_at((0, 0))),
        {"S(0) R -> S(0)", "S(0 of 2) R -> S(1)"},
    ),
    (
        "features",
        Case("Reshape", [normal(3, 2, 24), ints(3, 8, 6)], literals=frozenset((1,)),
             merges=_at((2, 1))),
        {"S(1) R -> S(1)", "S(2) R -> S(1 of 2)"},
    ),
    (
        "product",
        Case("MatMul", [normal(8, 3, 6), normal(8, 6, 3)], merges=_at((0, 0), (1, 0), (2, 0))),
        {"S(0) S(0) -> S(0)", "S(0 of 2) S(0 of 2) -> S(0 of 2)"},
    ),
    (
        "shares",
        Case("Softmax", [normal(8, 3, 6)], {"axis": -1}, merges=_at((0, 0), (1, 0))),
        {"S(0) -> S(0)", "S(0 of 2) -> S(0 of 2)"},
    ),
    (
        "gradient",
        Case("Einsum", [normal(8, 3, 6), normal(8, 3, 4)], {"equation": "abc,abd->acd"},
             merges=_at((0, 0), (1, 0), (2, 0))),
        {"S(0) S(0) -> S(0)", "S(0 of 2) S(0 of 2) -> S(0 of 2)"},
    ),
    (
        "broadcast",
        Case("Add", [normal(8, 3, 6), normal(1, 3, 6)], merges=_at((0, 0), (2, 0))),
        {"S(0) R -> S(0)", "S(0 of 2) R -> S(0 of 2)"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "expected"), [own[1:] for own in CASES], ids=[c[0] for c in CASES]
)
def test_either_loop_may_be_split(case: Case, expected: set[str]) -> None:
    assert expected <= offered(case)


@pytest.mark.parametrize("case", [own[1] for own in CASES], ids=[own[0] for own in CASES])
def test_samples_and_heads_are_split_together(case: Case) -> None:
    """Samples on the first axis and heads on the second; the other way round has no layout."""
    found = offered(case, (2, 2))
    assert any("S(0),S(0)" in text or "S(1),S(1)" in text for text in found)
    assert not any("S(0 of 2),S(0)" in text for text in found)


def test_four_ranks_split_heads_of_two_samples() -> None:
    case = Case("MatMul", [normal(8, 3, 6), normal(8, 6, 3)], merges=_at((0, 0), (1, 0), (2, 0)))
    found = offered(case, (4,))
    assert "S(0 of 2) S(0 of 2) -> S(0 of 2)" in found
    assert "S(0) S(0) -> S(0)" not in found


def test_an_uneven_batch_is_padded_by_samples() -> None:
    """Five samples of four heads on two ranks: three samples, or two heads of each."""
    merges = tuple((tensor, 0, (1,) * 5) for tensor in range(3))
    case = Case("MatMul", [normal(20, 3, 6), normal(20, 6, 3)], merges=merges, units=((0, (5,)),))
    assert {f"S(0 {own} 5) S(0 {own} 5) -> S(0 {own} 5)" for own in ("of", "in")} <= offered(case)


def test_convolutions_count_their_groups_alone() -> None:
    """Code for a rank divides the number of groups, which a piece of each sample has not."""
    case = Case("Conv", [normal(1, 8, 5), normal(8, 1, 3)], {"group": 8},
                merges=_at((0, 1), (1, 0), (2, 1)))  # fmt: skip
    assert not any(" of " in text for text in offered(case))
