"""Reshape and its kin: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

from tensoropt.compiler.sharding.ops.reshaping import reshape_blocks
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.compiler.sharding.rule.registry import rule_for

MESHES = [(2,), (4,), (2, 2), (2, 3)]
LITERAL = frozenset({1})
Shape = tuple[int | None, ...]


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def reshape(source: tuple[int, ...], *shape: int, **more: Any) -> Case:
    more.setdefault("literals", LITERAL)
    return Case("Reshape", [normal(*source), ints(*shape)], **more)


def splits(case: Case, mesh: tuple[int, ...] = (2,)) -> set[str]:
    """Return the splits that are right, as pairs of the operand's and the result's."""
    found = offered(case, mesh)
    rest = " R" * (len(case.operands) - 1)
    assert {f"R{rest} -> R", f"P(sum){rest} -> P(sum)"} <= found
    return {text.replace(f"{rest} ->", " ->") for text in found if "S" in text}


@pytest.mark.parametrize(
    ("source", "result", "expected"),
    [
        ((4, 6), (4, 6), [((0,), (0,)), ((1,), (1,))]),
        ((4, 6), (24,), [((0, 1), (0,))]),
        ((24,), (4, 6), [((0,), (0, 1))]),
        ((4, 6, 2), (4, 2, 6), [((0,), (0,)), ((1, 2), (1, 2))]),
        ((4, 6), (1, 4, 6), [((0,), (0, 1)), ((1,), (2,))]),
        ((4, 6), (6, 4), [((0, 1), (0, 1))]),
        ((2, 3, 4, 5), (6, 20), [((0, 1), (0,)), ((2, 3), (1,))]),
        ((4, 1), (4,), [((0,), (0,)), ((1,), ())]),
        ((None, 8), (None, 2, 4), [((0,), (0,)), ((1,), (1, 2))]),
        ((3, None, 8), (3, None, 4, 2), [((0,), (0,)), ((1,), (1,)), ((2,), (2, 3))]),
        ((None, 6), (6, None), [((0, 1), (0, 1))]),
        ((), (1,), [((), (0,))]),
    ],
)
def test_blocks(source: Shape, result: Shape, expected: list[Any]) -> None:
    blocks = [(tuple(b.source), tuple(b.result)) for b in reshape_blocks(source, result)]
    assert blocks == expected


@pytest.mark.parametrize(
    ("source", "shape", "expected"),
    [
        ((4, 32), (4, 8, 4), {"S(0) -> S(0)", "S(1) -> S(1)"}),
        ((4, 8, 4), (4, 32), {"S(0) -> S(0)", "S(1) -> S(1)"}),
        ((4, 8, 3), (32, 3), {"S(0) -> S(0)", "S(2) -> S(1)"}),
        ((32, 3), (4, 8, 3), {"S(0) -> S(0)", "S(1) -> S(2)"}),
        ((4, 6), (6, 4), {"S(0) -> S(0)"}),
        ((1, 8, 3), (8, 1, 3), {"S(1) -> S(0)", "S(2) -> S(2)"}),
        ((3, 8), (24,), set()),
        ((24,), (3, 8), set()),
        ((4, 6), (0, -1), {"S(0) -> S(0)", "S(1) -> S(1)"}),
        ((4, 6), (-1, 3, 2), {"S(0) -> S(0)"}),
        ((4, 6), (0, -1, 2), {"S(0) -> S(0)"}),
        ((4, 1, 8), (0, 0, 2, -1), {"S(0) -> S(0)", "S(2) -> S(2)"}),
    ],
)
@pytest.mark.parametrize("literals", [LITERAL, frozenset()])
def test_the_major_dimension_of_each_block_splits(
    source: tuple[int, ...],
    shape: tuple[int, ...],
    expected: set[str],
    literals: frozenset[int],
) -> None:
    assert splits(reshape(source, *shape, literals=literals)) == expected


def test_pieces_divide_both_major_dimensions() -> None:
    assert splits(reshape((4, 6), 6, 4), (4,)) == set()
    assert splits(reshape((8, 6), 4, 12), (4,)) == {"S(0) -> S(0)"}
    assert "S(0),S(0) R,R -> S(0),S(0)" in offered(reshape((8, 6), 12, 4), (2, 2))


def test_zero_is_a_size_where_allowed() -> None:
    case = reshape((0, 4), 4, 0, attributes={"allowzero": 1})
    assert splits(case) == set()


@pytest.mark.parametrize(
    ("shape", "literals", "expected"),
    [
        ((-1, 4, 2), LITERAL, {"S(1) -> S(1)"}),
        ((0, 4, 2), LITERAL, {"S(1) -> S(1)"}),
        ((0, 4, -1), LITERAL, {"S(1) -> S(1)"}),
        ((-1, 4, 2), frozenset(), {"S(1) -> S(1)"}),
        ((0, 4, 2), frozenset(), {"S(1) -> S(1)"}),
        ((5, 4, 2), frozenset(), {"S(1) -> S(1)"}),
    ],
)
def test_a_symbolic_batch_stays_whole(
    shape: tuple[int, ...], literals: frozenset[int], expected: set[str]
) -> None:
    hidden = frozenset({(0, 0)})
    case = reshape((5, 8), *shape, literals=literals, symbolic=hidden, symbolic_results=hidden)
    assert splits(case) == expected


def test_a_dimension_that_may_be_copied_stays_whole() -> None:
    """[1, 8, ?] by an unknown shape to [8, ?, ?]: an entry of 0 would copy the local size."""
    case = reshape(
        (1, 8, 16),
        8, 0, -1,
        literals=frozenset(),
        symbolic=frozenset({(0, 2)}),
        symbolic_results=frozenset({(0, 1), (0, 2)}),
    )  # fmt: skip
    assert splits(case) == set()


def test_a_zero_that_copies_nothing_lets_the_heads_be_split() -> None:
    """[1, heads, new, past] by an unknown shape to [heads, new, past], as in BLOOM."""
    case = reshape(
        (1, 8, 5, 3),
        8, 5, 3,
        literals=frozenset(),
        attributes={"allowzero": 1},
        symbolic=frozenset({(0, 2), (0, 3)}),
        symbolic_results=frozenset({(0, 1), (0, 2)}),
    )  # fmt: skip
    assert splits(case) == {"S(1) -> S(0)"}


def test_a_shape_in_an_attribute_is_declined() -> None:
    held = TensorInfo((4, 6), "float32", 4)
    rule = rule_for(OpInfo("Reshape", 4, (held,), (held,), (("shape", (4, 6)),)))
    assert not any(factor.can_split for factor in rule.factors)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_flatten(axis: int) -> None:
    found = splits(Case("Flatten", [normal(4, 6, 8)], {"axis": axis}))
    front = {"S(0) -> S(0)"} if axis else {"S(0) -> S(1)"}
    back = {1: {"S(1) -> S(1)"}, 2: {"S(2) -> S(1)"}, -1: {"S(2) -> S(1)"}}
    assert found == front | back.get(axis, set())


@pytest.mark.parametrize(
    "case",
    [
        Case("Squeeze", [normal(1, 4, 1, 6), ints(0, 2)], literals=LITERAL),
        Case("Squeeze", [normal(1, 4, 1, 6), ints(0, -2)]),
        Case("Squeeze", [normal(1, 4, 1, 6)], {"axes": [0, 2]}, version=11),
        Case("Squeeze", [normal(1, 4, 1, 6)]),
        Case("Squeeze", [normal(1, 4, 1, 6)], version=11),
    ],
)
def test_squeeze(case: Case) -> None:
    assert splits(case) == {"S(1) -> S(0)", "S(3) -> S(1)"}


def test_squeeze_keeps_a_dimension_that_splitting_made_one() -> None:
    for version in (11, 20):
        case = Case("Squeeze", [normal(1, 2, 6)], version=version)
        assert splits(case) == {"S(1) -> S(0)", "S(2) -> S(1)"}


def test_squeeze_of_unknown_axes_is_declined() -> None:
    hidden = frozenset({(0, 0)})
    case = Case("Squeeze", [normal(5, 1, 6)], symbolic=hidden, symbolic_results=hidden)
    assert offered(case) == {"R -> R"}


@pytest.mark.parametrize(
    "case",
    [
        Case("Unsqueeze", [normal(4, 6), ints(0, 2)], literals=LITERAL),
        Case("Unsqueeze", [normal(4, 6), ints(0, -2)]),
        Case("Unsqueeze", [normal(4, 6)], {"axes": [0, 2]}, version=11),
    ],
)
def test_unsqueeze(case: Case) -> None:
    assert splits(case) == {"S(0) -> S(1)", "S(1) -> S(3)"}


def test_unknown_sizes_before_where_are_declined() -> None:
    hidden = frozenset({(0, 0)})
    case = Case(
        "Reshape",
        [normal(5, 8), ints(0, 4, 2)],
        version=8,
        symbolic=hidden,
        symbolic_results=hidden,
    )
    assert offered(case) == {"R R -> R"}


factors = st.lists(st.sampled_from([1, 2, 2, 3]), min_size=1, max_size=6)


@examples(60)
@given(
    primes=factors,
    cuts=st.tuples(st.integers(0, 63), st.integers(0, 63)),
    style=st.sampled_from(["plain", "inferred", "copied"]),
    literal=st.booleans(),
    mesh=st.sampled_from(MESHES),
)
def test_reshape_of_any_shapes(
    primes: list[int], cuts: tuple[int, int], style: str, literal: bool, mesh: tuple[int, ...]
) -> None:
    source, result = (merged(primes, cut) for cut in cuts)
    entries = list(result)
    if style == "inferred":
        entries[-1] = -1
    if style == "copied" and source[0] == result[0]:
        entries[0] = 0
    check(reshape(source, *entries, literals=LITERAL if literal else frozenset()), mesh)


def merged(primes: list[int], cut: int) -> tuple[int, ...]:
    """Return a shape of the primes in order, neighbours multiplied where a bit of ``cut`` is 0."""
    groups = [[primes[0]]]
    for index, prime in enumerate(primes[1:]):
        if cut >> index & 1:
            groups.append([prime])
        else:
            groups[-1].append(prime)
    return tuple(math.prod(group) for group in groups)


def test_what_lies_behind_a_copied_symbolic_dimension_can_be_split() -> None:
    """The heads of keys repeated for their queries: [batch, 2, 2, seq, 8] to [batch, 4, seq, 8]."""
    case = reshape(
        (3, 2, 2, 5, 8),
        *(0, 4, -1, 8),
        symbolic=frozenset({(0, 0), (0, 3)}),
        symbolic_results=frozenset({(0, 0), (0, 2)}),
    )
    assert splits(case) == {"S(1) -> S(1)", "S(4) -> S(3)"}


def test_zero_does_not_copy_where_it_stands_for_itself() -> None:
    hidden = frozenset({(0, 0)})
    case = reshape((0, 4, 6), 0, 24, attributes={"allowzero": 1}, symbolic=hidden)
    assert "S(1) -> S(1)" not in offered(replace(case, symbolic_results=hidden))


@pytest.mark.parametrize(("kind", "shape", "axis"), [("Unsqueeze", (3, 4, 5, 6), 2),
                                                     ("Squeeze", (3, 4, 1, 5, 6), 2)])  # fmt: skip
def test_axes_line_up_beside_symbolic_dimensions(
    kind: str, shape: tuple[int, ...], axis: int
) -> None:
    """[batch, 4, seq, 6] and [batch, 4, 1, seq, 6]."""
    long = frozenset({(0, 0), (0, 3)})
    short = frozenset({(0, 0), (0, 2)})
    hidden, shown = (short, long) if kind == "Unsqueeze" else (long, short)
    operands = [normal(*shape), ints(axis)]
    case = Case(kind, operands, literals=LITERAL, symbolic=hidden, symbolic_results=shown)
    last = "S(3) -> S(4)" if kind == "Unsqueeze" else "S(4) -> S(3)"
    assert splits(case) == {"S(1) -> S(1)", last}
