"""Which requests share a run: one kind alone, in order, none lost, none twice, never too many."""

from __future__ import annotations

import math

import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.serving.batching.pending import Pending

_ITEMS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), max_size=40)


@examples(40)
@given(_ITEMS, st.integers(4, 9))
def test_runs_are_of_one_key_in_order_and_complete(items, size):
    pending = Pending[int](size, 1.0)
    for number, (key, samples) in enumerate(items):
        pending.add(number, key, samples, now=0.0)
    runs = []
    while run := pending.take():
        runs.append(run)
    taken = [number for run in runs for number in run]
    assert sorted(taken) == list(range(len(items)))
    for run in runs:
        assert len({items[number][0] for number in run}) == 1
        assert sum(items[number][1] for number in run) <= size
    for key in "abc":
        of_key = [number for number in taken if items[number][0] == key]
        assert of_key == sorted(of_key)
    firsts = [run[0] for run in runs]
    assert firsts == sorted(firsts), "the oldest comes first"


@examples(40)
@given(_ITEMS, st.data())
def test_what_is_removed_is_in_no_run(items, data):
    pending = Pending[int](4, 1.0)
    for number, (key, samples) in enumerate(items):
        pending.add(number, key, samples, now=0.0)
    gone = set(data.draw(st.lists(st.integers(0, 40))))
    for number in gone:
        pending.remove(number)
    left = {*range(len(items))} - gone
    assert len(pending) == len(left)
    taken = set()
    while run := pending.take():
        taken.update(run)
    assert taken == left


def test_a_run_is_due_when_full_or_old():
    pending = Pending[str](4, 0.5)
    assert pending.due_in(0.0) == math.inf
    pending.add("first", "k", 1, now=10.0)
    pending.add("other", "l", 4, now=10.0)
    assert pending.due_in(10.2) == pytest.approx(0.3)
    assert pending.due_in(11.0) == 0.0
    pending.add("second", "k", 3, now=10.3)
    assert pending.due_in(10.3) == 0.0
    assert pending.take() == ["first", "second"]
    assert pending.due_in(10.3) == 0.0
    assert pending.take() == ["other"]


def test_a_run_is_due_when_the_next_does_not_fit():
    pending = Pending[str](4, 0.5)
    pending.add("first", "k", 3, now=0.0)
    pending.add("second", "k", 2, now=0.0)
    assert pending.due_in(0.0) == 0.0
    assert pending.take() == ["first"]


@pytest.mark.parametrize("samples", [0, 5])
def test_what_never_fits_is_no_item(samples):
    with pytest.raises(ValueError, match=f"samples: expected 1 to 4, got: {samples}"):
        Pending[str](4, 0.5).add("x", "k", samples, now=0.0)
