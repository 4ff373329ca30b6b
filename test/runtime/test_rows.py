"""Rows of a batch of texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tensoropt.runtime.text.rows import _fill
from tensoropt.runtime.text.sampling import Sampler, Sampling
from tensoropt.runtime.text.scheduling import Text

TEXTS = [Text(n, n, [1], 1, 8, (), Sampler(Sampling(), n)) for n in range(12)]


@given(st.data())
def test_texts_keep_their_rows(data: st.DataObject) -> None:
    """Only as many texts move as leave, each to a lower row, and never over one that stays."""
    before = data.draw(st.lists(st.sampled_from(TEXTS), unique_by=id))
    texts = data.draw(st.lists(st.sampled_from(TEXTS), unique_by=id))
    order = _fill(before, texts)
    assert {*map(id, order)} == {*map(id, texts)}
    assert len(order) == len(texts)
    moves = [
        (before.index(text), row)
        for row, text in enumerate(order)
        if text in before and before.index(text) != row
    ]
    assert all(new < old for old, new in moves)
    assert all(before[new] not in texts for _, new in moves)
    joined = sum(text not in before for text in texts)
    left = sum(text not in texts for text in before)
    assert len(moves) <= max(0, left - joined)
