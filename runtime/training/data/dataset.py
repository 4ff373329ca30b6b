"""A source over samples with random access, in a fixed or shuffled order."""

from __future__ import annotations

from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.training.data.order import Order
from tensoropt.runtime.training.data.source import Batch, Facts, Parts, Samples, hull

__all__ = ["Dataset"]


class Dataset:
    """``samples`` in storage order or, with a seed ``shuffle``, in a random order per epoch."""

    def __init__(self, samples: Samples, shuffle: int | None = None) -> None:
        self._samples = samples
        self._order = Order(samples.counts, shuffle, samples.window)

    @property
    def facts(self) -> Facts:
        return self._samples.facts

    def read(self, position: int, parts: Parts) -> Batch:
        """Return ``parts`` of the batch that begins at sample ``position``; see `Source.read`."""
        first, last = hull(parts)
        ids = self.ids(position + first, last - first)
        moved = {
            name: (slice(rows.start - first, rows.stop - first), *rest)
            for name, (rows, *rest) in parts.items()
        }
        return self._samples.take(ids, moved)

    def ids(self, position: int, count: int) -> Array:
        """Return the numbers of ``count`` samples from ``position`` on; see `Source.ids`."""
        return self._order.ids(position, count)
