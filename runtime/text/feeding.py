"""The inputs of a decoder's step, except caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.text.decoder import IDS, MASK, POSITIONS, Decoder, Padding
from tensoropt.runtime.text.scheduling import Text

__all__ = ["Fed", "Part", "feed"]

Fed = Mapping[str, Array]
"""Whole inputs of a step except caches, by name."""


@dataclass(frozen=True)
class Part:
    """The part of a text that a step reads: its next ``count`` tokens, then ``proposed`` ones."""

    text: Text
    count: int
    proposed: Sequence[int] = ()

    @property
    def size(self) -> int:
        """Number of tokens."""
        return self.count + len(self.proposed)

    @property
    def asked(self) -> int:
        """Number of last tokens that a choice may follow; 0 if more of the text is left to read."""
        return 0 if self.count < self.text.left else 1 + len(self.proposed)

    @property
    def tokens(self) -> list[int]:
        """The tokens that are read."""
        read = self.text.read
        return [*self.text.tokens[read : read + self.count], *self.proposed]


def feed(decoder: Decoder, parts: Sequence[Part], rows: int) -> Fed:
    """Return the inputs of a step that reads parts of equal size, one per row.

    Rows without a text see their own tokens alone.
    """
    size = parts[0].size
    read = np.array([part.text.read for part in parts] + [0] * (rows - len(parts)))[:, None]
    ids = np.zeros((rows, size), np.int64)
    ids[: len(parts)] = [part.tokens for part in parts]
    places = np.arange(read.max() + size)
    mask = places < read + size if decoder.padding is Padding.RIGHT else places >= read.max() - read
    arrays = {IDS: ids, MASK: mask, POSITIONS: read + np.arange(size)}
    return {
        name: arrays[name].astype(dtype_of(tensor.dtype), copy=False)
        for name, tensor in decoder.inputs.items()
    }
