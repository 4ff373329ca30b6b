"""Blocks of a line of ops: they cover it, and find what repeats."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.compiler.training.segments import divide

Values = list[tuple[int, int, int]]


def chain(count: int, size: int = 8) -> Values:
    """Return the values of ops each of which reads what the one before it made."""
    return [(i, min(i + 1, count - 1), size) for i in range(count)]


@given(
    st.lists(st.integers(0, 3), max_size=40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39), st.integers(0, 9)), max_size=30),
)
def test_blocks_cover_all_ops_in_order(kinds: list[int], spans: Values) -> None:
    most = len(kinds) - 1
    values = [(min(a, b, most), min(max(a, b), most), n) for a, b, n in spans] if kinds else []
    blocks = divide(kinds, values)
    assert [i for block in blocks for i in block] == list(range(len(kinds)))
    assert all(blocks)


@pytest.mark.parametrize("layers", [2, 3, 12, 96])
def test_layers_are_found_between_what_is_not_one(layers: int) -> None:
    layer = ["norm", "product", "function", "product", "add"]
    kinds = ["embed", *layer * layers, "norm", "scores", "loss"]
    # What crosses between layers is smaller than what crosses inside of them.
    sizes = [1, *[4, 4, 4, 4, 1] * layers, 2, 2, 2]
    values = [(a, b, sizes[a]) for a, b, _ in chain(len(kinds))]
    blocks = divide(kinds, values)
    starts = [1 + 5 * number for number in range(layers)]
    assert [range(start, start + 5) for start in starts] == [b for b in blocks if len(b) == 5]


def test_stages_of_different_layers_are_found() -> None:
    first, second = ["a", "b", "c", "d"] * 3, ["e", "f", "g", "h", "i"] * 4
    kinds = [*first, "between", *second]
    blocks = divide(kinds, chain(len(kinds)))
    assert sum(len(b) == 4 for b in blocks) >= 2
    assert sum(len(b) == 5 for b in blocks) >= 3


@pytest.mark.parametrize("count", [16, 100, 400])
def test_what_does_not_repeat_is_divided_into_about_sqrt(count: int) -> None:
    blocks = divide(list(range(count)), chain(count))
    assert len(blocks) == math.isqrt(count)
    assert max(map(len, blocks)) <= 2 * math.isqrt(count)


def test_cuts_are_where_the_fewest_tensors_cross() -> None:
    # Each module of four ops reads its input twice, but the next one only its last result.
    values: Values = []
    for start in range(0, 64, 4):
        values += [(start, start + 3, 8), (start + 1, start + 2, 8), (start + 2, start + 3, 8)]
        values.append((start + 3, min(start + 4, 63), 8))
    blocks = divide(list(range(64)), values)
    assert len(blocks) == 8
    assert all(block.start % 4 == 0 for block in blocks)
    for before, behind in itertools.pairwise(blocks):
        assert sum(a < behind.start <= b for a, b, _ in values) == 1, before
