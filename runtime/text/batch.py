"""Sequences that go through a decoder together, one step after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensoropt.runtime.pool.pool import Pool
from tensoropt.runtime.support.dtypes import dtype_of
from tensoropt.runtime.support.messages import Message
from tensoropt.runtime.text.decoder import IDS, MASK, POSITIONS, Decoder

__all__ = ["Batch"]

Array = npt.NDArray[Any]


class Batch:
    """Prompts of a decoder on the ranks of a pool; shorter ones are padded on their left.

    Where the plan has a fixed number of sequences, the last prompt stands in for those that lack:
    scores come with a row for each of these too, at the end.
    """

    def __init__(self, pool: Pool, decoder: Decoder, prompts: Sequence[Sequence[int]]) -> None:
        self._pool, self._decoder = pool, decoder
        filled = [*prompts, *[prompts[-1]] * ((decoder.batch or 0) - len(prompts))]
        self._count, self.length = len(filled), max(map(len, filled))
        shape = self._count, self.length
        self._ids, self._mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, prompt in enumerate(filled):
            self._ids[row, self.length - len(prompt) :] = prompt
            self._mask[row, self.length - len(prompt) :] = 1

    def begin(self, count: int) -> Array:
        """Read the prompts, for ``count`` tokens to follow; returns scores of what comes next."""
        message: Message = {"tokens": self.length + count}
        if not self._decoder.one_by_one:
            return self._run(self._ids, self._mask, message)
        for at in range(self.length):
            mask = self._mask[:, : at + 1]
            scores = self._run(self._ids[:, at : at + 1], mask, message if at == 0 else {})
        return scores

    def step(self, tokens: Sequence[int]) -> Array:
        """Read one more token of each sequence; returns scores `[sequence, vocabulary]`."""
        filled = [*tokens, *[tokens[-1]] * (self._count - len(tokens))]
        self._mask = np.pad(self._mask, ((0, 0), (0, 1)), constant_values=1)
        return self._run(np.array(filled, np.int64)[:, None], self._mask, {})

    def _run(self, ids: Array, mask: Array, message: Message) -> Array:
        scores = self._decoder.scores
        vocabulary = scores.shape[2]
        positions = np.maximum(mask.cumsum(axis=1) - 1, 0)[:, -ids.shape[1] :]
        known = {IDS: ids, MASK: mask, POSITIONS: positions}
        arrays = {
            name: known[name].astype(dtype_of(tensor.dtype))
            for name, tensor in self._decoder.inputs.items()
        }
        room = {scores.name: (dtype_of(scores.dtype), (self._count, 1, int(vocabulary)))}
        _, found = self._pool.call(message, arrays, room)
        made: Array = found[scores.name][:, 0]
        return made
