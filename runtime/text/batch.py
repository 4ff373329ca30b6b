"""The inputs of a decoder for a batch of sequences, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.text.decoder import IDS, MASK, POSITIONS, Decoder

__all__ = ["Batch", "Fed"]

Fed = Mapping[str, Array]
"""Whole inputs of a step except caches, by name."""


class Batch:
    """A batch of prompts, each to be followed by ``limit`` tokens; short prompts are left-padded.

    ``reader`` reads the prompts and may be another plan of the same model. It reads as many tokens
    as it can: its steps may need a fixed number of tokens, or a multiple of its parts.
    ``decoder`` reads the rest.

    If the plan does not allow this number of sequences, the last prompt is repeated to fill the
    batch. Scores have rows for the repetitions too, at the end.

    A step reads at most ``step_tokens`` tokens over all prompts, or the fewest that the plan can
    read. None sets no limit.
    """

    def __init__(
        self,
        prompts: Sequence[Sequence[int]],
        limit: int,
        decoder: Decoder,
        reader: Decoder,
        step_tokens: int | None = None,
    ) -> None:
        self._decoder, self._reader = decoder, reader
        filled = [*prompts, *[prompts[-1]] * (decoder.rows(len(prompts)) - len(prompts))]
        self.count, self._length = len(filled), max(map(len, filled))
        self._most = None if step_tokens is None else max(1, step_tokens // self.count)
        self.room = self._length + limit  # tokens of a sequence at its end
        self._ids = np.zeros((self.count, self._length), np.int64)
        self._mask = np.ones((self.count, self.room), np.int64)
        for row, prompt in enumerate(filled):
            start = self._length - len(prompt)
            self._ids[row, start:] = prompt
            self._mask[row, :start] = 0

    def prompts(self) -> Iterator[tuple[Decoder, Fed]]:
        """Yield the decoder and the inputs of each step that reads the prompts."""
        positions = np.maximum(self._mask[:, : self._length].cumsum(axis=1) - 1, 0)
        self._read, self._last = 0, positions[:, -1:]
        for decoder, size in self._sizes():
            read = slice(self._read, self._read + size)
            self._read += size
            yield decoder, self._fed(decoder, self._ids[:, read], positions[:, read])

    def _sizes(self) -> Iterator[tuple[Decoder, int]]:
        """Yield the decoder and the number of tokens of each step that reads the prompts."""
        left = self._length
        if self._reader is not self._decoder:
            while size := self._reader.step_size(left, self._most):
                left -= size
                yield self._reader, size
        while size := self._decoder.step_size(left, self._most):
            left -= size
            yield self._decoder, size

    def step(self, tokens: Sequence[int]) -> Fed:
        """Return the inputs of the next step, which reads one more token of each sequence."""
        filled = [*tokens, *[tokens[-1]] * (self.count - len(tokens))]
        self._read, self._last = self._read + 1, self._last + 1
        return self._fed(self._decoder, np.array(filled, np.int64)[:, None], self._last)

    def _fed(self, decoder: Decoder, ids: Array, positions: Array) -> Fed:
        arrays = {IDS: ids, MASK: self._mask[:, : self._read], POSITIONS: positions}
        return {
            name: arrays[name].astype(dtype_of(tensor.dtype), copy=False)
            for name, tensor in decoder.inputs.items()
        }
