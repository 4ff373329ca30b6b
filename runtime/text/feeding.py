"""The inputs of a decoder's step, except caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.text.decoder import IDS, MASK, POSITIONS, Decoder, Padding
from tensoropt.runtime.text.scheduling import Text

__all__ = ["Fed", "feed_batch", "feed_chunk"]

Fed = Mapping[str, Array]
"""Whole inputs of a step except caches, by name."""


def feed_chunk(decoder: Decoder, text: Text, size: int, rows: int) -> Fed:
    """Return the inputs of a step that reads the next ``size`` tokens of a text.

    All ``rows`` of the step are of this text.
    """
    end = text.read + size
    ids = np.array([text.tokens[text.read : end]] * rows, np.int64)
    positions = np.broadcast_to(np.arange(text.read, end), ids.shape)
    return _name(decoder, ids, positions, np.ones((rows, end), np.int64))


def feed_batch(decoder: Decoder, texts: Sequence[Text], rows: int) -> Fed:
    """Return the inputs of a step that reads the next token of each text.

    Rows without a text see their own token alone.
    """
    read = np.array([text.read for text in texts] + [0] * (rows - len(texts)))
    ids = np.zeros((rows, 1), np.int64)
    ids[: len(texts), 0] = [text.tokens[text.read] for text in texts]
    places = np.arange(read.max() + 1)
    if decoder.padding is Padding.RIGHT:
        mask = places <= read[:, None]
    else:
        mask = places >= read.max() - read[:, None]
    return _name(decoder, ids, read[:, None], mask.astype(np.int64))


def _name(decoder: Decoder, ids: Array, positions: Array, mask: Array) -> Fed:
    arrays = {IDS: ids, MASK: mask, POSITIONS: positions}
    return {
        name: arrays[name].astype(dtype_of(tensor.dtype), copy=False)
        for name, tensor in decoder.inputs.items()
    }
