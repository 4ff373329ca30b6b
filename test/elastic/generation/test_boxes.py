"""State goes from any layout to any other, box by box."""

from __future__ import annotations

import math

import numpy as np
from drawn_layouts import changes
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.elastic.generation.boxes import pieces_of
from tensoropt.runtime.layout.mesh_layout import parse_layout


@given(changes())
def test_the_pieces_are_the_part_and_each_element_is_copied_once(change):
    shape, held, wanted = change
    whole = 1 + np.arange(math.prod(shape)).reshape(shape)
    parts = {rank: held.local_slice(whole, rank) for rank in range(held.mesh.size)}
    for rank in range(wanted.mesh.size):
        mine = np.zeros(wanted.local_shape(shape), int)
        copied = 0
        for piece in pieces_of(shape, rank, wanted, held):
            mine[piece.mine] = parts[piece.holder][piece.theirs]
            copied += mine[piece.mine].size
        real = wanted.real(mine, shape, rank)
        np.testing.assert_array_equal(real, wanted.part_of(whole, rank))
        parts_of_rank = (box.part for box in wanted.boxes(shape, rank))
        assert copied == sum(real[part].size for part in parts_of_rank)


@given(changes(), st.integers(0, 3))
def test_the_nearest_of_several_holders_is_asked(change, near):
    shape, held, wanted = change

    def starts(rank):
        return [b.start for box in held.boxes(shape, rank) for b in box.whole]

    for piece in pieces_of(shape, 0, wanted, held, lambda holder: holder != near):
        if near < held.mesh.size:
            assert piece.holder == near or starts(near) != starts(piece.holder)


def test_readers_spread_over_replicas():
    held, wanted = parse_layout(["R"], [4]), parse_layout(["S(0)"], [4])
    holders = [pieces_of([8], rank, wanted, held)[0].holder for rank in range(4)]
    assert sorted(holders) == [0, 1, 2, 3]
