"""A source over a stream of samples that can seek to a position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Any

import numpy as np

from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.data.python import Stream, one_line_of
from tensoropt.runtime.training.data.samples import Batches
from tensoropt.runtime.training.data.source import Batch, Facts, Parts, hull

__all__ = ["StreamSource"]

_END = object()


class StreamSource:
    """The samples of ``stream``, which ``place`` names; a stream with a length repeats.

    Seeks if the next sample is not the stream's next: at the start of an epoch, and past samples
    for other ranks.
    """

    def __init__(self, place: str, stream: Stream, inputs: Sequence[Tensor]) -> None:
        self._place, self._stream = place, stream
        self._batches = Batches(place, inputs)
        self._samples = self._length()
        self._next: tuple[int, Iterator[Any]] | None = None
        self._epoch: int | None = None
        self.facts = Facts("python stream", self._samples)

    def read(self, position: int, parts: Parts) -> Batch:
        """Return ``parts`` of the batch that begins at sample ``position``; see `Source.read`."""
        if (now := self._length()) != self._samples:
            raise UserError(
                f"{self._place}: has {now} samples, expected {self._samples} as when the job began"
            )
        first, last = hull(parts)
        where = range(position + first, position + last)
        numbers = self.ids(where.start, len(where)).tolist()
        samples = ((n, self._sample(p)) for n, p in zip(numbers, where, strict=True))
        return self._batches.assemble(samples, first, parts)

    def ids(self, position: int, count: int) -> Array:
        """Return the indices in their epoch of ``count`` samples from ``position`` on."""
        positions = np.arange(position, position + count)
        return positions if self._samples is None else positions % self._samples

    def _length(self) -> int | None:
        if not isinstance(self._stream, Sized):
            return None
        with one_line_of(self._place):
            return len(self._stream)

    def _sample(self, position: int) -> Any:
        epoch, offset = divmod(position, self._samples) if self._samples else (0, position)
        with one_line_of(f"{self._place}: sample {offset}"):
            is_next = self._next is not None and self._next[0] == position and offset
            samples = self._next[1] if self._next and is_next else self._seek(epoch, offset)
            self._next = None
            sample = next(samples, _END)
        if sample is _END:
            expected = "no end" if self._samples is None else f"{self._samples}"
            raise UserError(f"{self._place}: ended after {offset} samples, expected {expected}")
        self._next = position + 1, samples
        return sample

    def _seek(self, epoch: int, offset: int) -> Iterator[Any]:
        """Return the samples of an epoch from ``offset`` on."""
        begin = getattr(self._stream, "set_epoch", None)
        if begin is not None and self._samples is not None and epoch != self._epoch:
            begin(epoch)
        self._epoch = epoch
        self._stream.seek(offset)
        return iter(self._stream)
