"""Placement: blocks do not overlap, jobs that fit by number are placed, and few jobs move."""

import pytest
from budgets import examples
from cluster.placement import Machines
from hypothesis import given
from hypothesis import strategies as st

STEPS = st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=40)


@examples(60)
@given(STEPS, st.integers(1, 4))
def test_whatever_fits_by_number_fits(steps, count):
    """After any history, blocks are disjoint and aligned, in one machine or of whole machines."""
    machines, sizes = Machines(count, 8), {}
    for job, (power, release) in enumerate(steps):
        if release and sizes:
            machines.release(gone := next(iter(sizes)))
            del sizes[gone]
        size = 1 << power
        if size > machines.free or (size > 8 and size > 8 * count):
            continue
        moved = machines.place([(job, size)])
        assert job not in moved and moved <= set(sizes)
        sizes[job] = size
        _check(machines, sizes, count)


def _check(machines, sizes, count):
    taken = [0] * count
    for job, size in sizes.items():
        blocks = machines.blocks(job)
        assert sum(mask.bit_count() for _, mask in blocks) == size
        assert len(blocks) == max(1, size // 8)
        for machine, mask in blocks:
            assert not taken[machine] & mask
            taken[machine] |= mask
            width = mask.bit_count()
            offset = (mask & -mask).bit_length() - 1
            assert mask == ((1 << width) - 1) << offset and offset % width == 0
    assert machines.free == sum(8 - mask.bit_count() for mask in taken)


def test_a_job_moves_only_where_free_devices_are_in_pieces():
    machines = Machines(2, 4)
    machines.place([(0, 2), (1, 2), (2, 2)])
    assert machines.place([(3, 2)]) == set()
    machines.release(0)
    machines.release(2)
    moved = machines.place([(4, 4)])
    assert len(moved) == 1 and machines.free == 0


def test_too_many_devices_are_refused():
    machines = Machines(1, 4)
    with pytest.raises(ValueError, match=r"^placement: 4 devices are free, got: 8 for 0$"):
        machines.place([(0, 8)])
