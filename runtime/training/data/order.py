"""The order of samples, for all sources with random access."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from tensoropt.runtime.support.dtypes import Array

__all__ = ["Order", "by_unit"]


class Order:
    """An endless order over the samples of units (files, row groups) with sizes ``counts``.

    Without a seed ``shuffle`` each epoch has storage order. With it, each epoch draws a new order
    of the units, and shuffles together the samples of consecutive units that begin within
    the same ``window`` samples (None: the samples of each unit).

    A shuffled window takes eight bytes per sample; two windows are cached.
    """

    def __init__(
        self, counts: Sequence[int], shuffle: int | None = None, window: int | None = None
    ) -> None:
        self._counts = np.asarray(counts, np.int64)
        self._firsts = np.cumsum(self._counts) - self._counts
        self.samples = int(self._counts.sum())
        self._shuffle, self._window = shuffle, window
        self._units = lru_cache(2)(self._draw_units)
        self._samples = lru_cache(2)(self._draw_samples)

    def ids(self, position: int, count: int) -> Array:
        """Return the numbers of ``count`` samples from ``position`` on, over any epochs."""
        found = [np.empty(0, np.int64)]
        while count:
            epoch, start = divmod(position, self.samples)
            taken = min(count, self.samples - start)
            found.append(self._epoch_ids(epoch, start, start + taken))
            position, count = position + taken, count - taken
        return np.concatenate(found)

    def _epoch_ids(self, epoch: int, start: int, stop: int) -> Array:
        if self._shuffle is None:
            return np.arange(start, stop)
        _, begins, _ = self._units(epoch)
        first, last = np.searchsorted(begins, [start, stop - 1], "right") - 1
        return np.concatenate(
            [
                self._samples(epoch, window)[max(start - begins[window], 0) : stop - begins[window]]
                for window in range(int(first), int(last) + 1)
            ]
        )

    def _draw_units(self, epoch: int) -> tuple[Array, Array, Array]:
        """Return the order of the units, and the first sample and the first unit of each window."""
        units = np.random.default_rng([self._shuffle or 0, epoch]).permutation(len(self._counts))
        begins = np.cumsum(self._counts[units]) - self._counts[units]
        if self._window is None:
            return units, begins, np.arange(len(units))
        places = np.flatnonzero(np.diff(begins // self._window, prepend=-1))
        return units, begins[places], places

    def _draw_samples(self, epoch: int, window: int) -> Array:
        units, _, places = self._units(epoch)
        drawn = units[places[window] : places[window + 1] if window + 1 < len(places) else None]
        sizes = zip(drawn.tolist(), self._counts[drawn].tolist(), strict=True)
        numbers = np.concatenate([np.arange(n) + self._firsts[unit] for unit, n in sizes])
        seed = [self._shuffle or 0, epoch, int(drawn[0])]
        return numbers[np.random.default_rng(seed).permutation(len(numbers))]


def by_unit(ids: Array, firsts: Array) -> Iterator[tuple[int, slice | Array, slice | Array]]:
    """Group samples by unit: yield each unit, its places in ``ids``, and its rows there.

    ``firsts`` are the numbers of the units' first samples. Units are yielded in the order of their
    first sample in ``ids``. Consecutive numbers are returned as a slice.
    """
    units = np.searchsorted(firsts, ids, "right") - 1
    present, first, counts = np.unique(units, return_index=True, return_counts=True)
    places = np.argsort(units, kind="stable")
    ends = np.cumsum(counts)
    for i in np.argsort(first).tolist():
        where = places[ends[i] - counts[i] : ends[i]]
        yield int(present[i]), _as_slice(where), _as_slice(ids[where] - firsts[present[i]])


def _as_slice(numbers: Array) -> slice | Array:
    start, stop = int(numbers[0]), int(numbers[-1]) + 1
    follows = stop - start == len(numbers) and bool((np.diff(numbers) == 1).all())
    return slice(start, stop) if follows else numbers
