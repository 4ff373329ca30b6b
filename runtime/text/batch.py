"""What sequences that go through a decoder together give its inputs, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.text.decoder import IDS, MASK, POSITIONS, Decoder

__all__ = ["Batch", "Fed"]

Fed = Mapping[str, Array]
"""Whole inputs of a step, beside caches, by name."""


class Batch:
    """Prompts of a decoder, ``limit`` tokens to follow; shorter ones are padded on their left.

    Where the plan has a fixed number of sequences, the last prompt stands in for those that lack:
    scores come with a row for each of these too, at the end.
    """

    def __init__(self, decoder: Decoder, prompts: Sequence[Sequence[int]], limit: int) -> None:
        self._decoder = decoder
        filled = [*prompts, *[prompts[-1]] * ((decoder.batch or 0) - len(prompts))]
        self.count, self._length = len(filled), max(map(len, filled))
        self.room = self._length + limit  # tokens of a sequence at its end
        self._ids = np.zeros((self.count, self._length), np.int64)
        self._mask = np.ones((self.count, self.room), np.int64)
        for row, prompt in enumerate(filled):
            start = self._length - len(prompt)
            self._ids[row, start:] = prompt
            self._mask[row, :start] = 0

    def prompts(self) -> Iterator[Fed]:
        """Yield what each step is given that reads the prompts."""
        positions = np.maximum(self._mask[:, : self._length].cumsum(axis=1) - 1, 0)
        self._read, self._last = 0, positions[:, -1:]
        size = 1 if self._decoder.one_by_one else self._length
        for start in range(0, self._length, size):
            end = start + size
            self._read = end
            yield self._fed(self._ids[:, start:end], positions[:, start:end])

    def step(self, tokens: Sequence[int]) -> Fed:
        """Return what the next step is given, that reads one more token of each sequence."""
        filled = [*tokens, *[tokens[-1]] * (self.count - len(tokens))]
        self._read, self._last = self._read + 1, self._last + 1
        return self._fed(np.array(filled, np.int64)[:, None], self._last)

    def _fed(self, ids: Array, positions: Array) -> Fed:
        known = {IDS: ids, MASK: self._mask[:, : self._read], POSITIONS: positions}
        return {
            name: known[name].astype(dtype_of(tensor.dtype), copy=False)
            for name, tensor in self._decoder.inputs.items()
        }
