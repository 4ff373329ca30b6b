"""Every sample once per epoch, whoever reads which part of which batches."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.data.dataset import Dataset
from tensoropt.runtime.training.data.order import Order, by_unit
from tensoropt.runtime.training.data.source import Facts, join_rows

COUNTS = st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(sum)
SEEDS = st.none() | st.integers(0, 99)
WINDOWS = st.none() | st.integers(1, 20)


class Numbers:
    """Samples that are their numbers."""

    def __init__(self, counts: Sequence[int], window: int | None) -> None:
        self.counts, self.window = counts, window
        self.facts = Facts("numbers", sum(counts))

    def take(self, ids, parts):
        return {name: ids[part[0]] for name, part in parts.items()}


@given(COUNTS, SEEDS, WINDOWS, st.data())
def test_each_sample_once_per_epoch(counts, seed, window, data) -> None:
    """A job whose batches are read by other numbers of ranks from one step to the next."""
    source, samples = Dataset(Numbers(counts, window), seed), sum(counts)
    batch = data.draw(st.integers(1, 12), "batch")
    read: list[int] = []
    while len(read) < 3 * samples:
        ranks = data.draw(st.sampled_from([n for n in range(1, batch + 1) if batch % n == 0]))
        # Ranks of another generation know nothing of this one.
        source = Dataset(Numbers(counts, window), seed)
        position, each = len(read), batch // ranks
        for rank in range(ranks):
            start, stop = rank * each, (rank + 1) * each
            parts = {"x": (slice(start, stop),), "last": (slice(stop - 1, stop),)}
            found = source.read(position, parts)
            read += found["x"].tolist()
            assert found["last"].tolist() == read[-1:]
        assert source.ids(position, batch).tolist() == read[position:]
    for start in range(0, len(read) - samples + 1, samples):
        assert sorted(read[start : start + samples]) == list(range(samples))


@pytest.mark.parametrize("window", [None, 10])
def test_epochs_and_seeds_differ(window: int | None) -> None:
    orders = [Order([40], seed, window).ids(first, 40) for seed in (1, 2) for first in (0, 40)]
    assert len({tuple(order) for order in orders}) == 4


def test_a_window_mixes_its_units_and_no_others() -> None:
    counts = [10] * 12
    ids = Dataset(Numbers(counts, window=40), 3).ids(0, 120)
    for window in np.split(ids, 3):
        units = {int(number) // 10 for number in window}
        assert len(units) == 4
        assert sorted(window) == sorted(
            n for unit in units for n in range(10 * unit, 10 * unit + 10)
        )
        assert len({int(number) // 10 for number in window[:10]}) > 1
    assert list(Order(counts, None, window=40).ids(0, 120)) == list(range(120))


@given(COUNTS, SEEDS, WINDOWS)
def test_rows_of_units(counts, seed, window) -> None:
    ids = Order(counts, seed, window).ids(0, 2 * sum(counts))
    firsts = np.cumsum(counts) - counts
    pieces, units = [], []
    for unit, where, rows in by_unit(ids, firsts):
        held = np.arange(counts[unit]) + firsts[unit]
        pieces.append((where, held[rows]))
        units.append(unit)
        assert isinstance(rows, slice) or len(rows) > 1
    assert join_rows(pieces).tolist() == ids.tolist()
    owners = np.repeat(np.arange(len(counts)), counts)[ids]
    assert units == list(dict.fromkeys(owners.tolist()))  # as they occur


def test_facts_of_a_job_that_is_started_again() -> None:
    before = Facts("npz", 1000, (("a.npz", 600), ("b.npz", 400)))
    assert Facts.from_values(before.values()) == before
    before.check("data/", Facts.from_values(before.values()))
    for now, message in (
        (Facts("python", 900), "data/: has a python source, expected 2 files of npz"),
        (
            Facts("npz", 1000, before.files[:1]),
            "data/: has 1 files of npz, expected 2 files of npz",
        ),
        (
            Facts("npz", 900, (("a.npz", 600), ("b.npz", 300))),
            "data/: has 300 samples in b.npz, expected 400 samples in b.npz",
        ),
        (
            Facts("npz", 1000, (("a.npz", 600), ("c.npz", 400))),
            "data/: has 400 samples in c.npz, expected 400 samples in b.npz",
        ),
    ):
        with pytest.raises(UserError) as error:
            now.check("data/", before)
        assert str(error.value) == f"{message} as when the job began"
    rows = Facts("parquet", 1000, before.files, groups=10)
    assert Facts.from_values(json.loads(json.dumps(rows.values()))) == rows
    with pytest.raises(UserError, match="has 20 row groups, expected 10 row groups as when the"):
        Facts("parquet", 1000, before.files, groups=20).check("rows/", rows)
    with pytest.raises(UserError) as error:
        Facts("python", 900).check("a:b", Facts("python", 1000))
    assert str(error.value) == "a:b: has 900 samples, expected 1000 samples as when the job began"
