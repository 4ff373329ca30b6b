"""The inputs of a decoder's step, except caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.text.decoder import IDS, MASK, POSITIONS, Decoder, Padding
from tensoropt.runtime.text.packing import COUNTS, PLACES, ROWS
from tensoropt.runtime.text.scheduling import Text
from tensoropt.runtime.text.scoring import SCORED

__all__ = ["Fed", "Part", "feed", "feed_packed", "longest_part", "share_prompts", "share_step"]

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
        """Number of last tokens with wanted scores.

        A choice may follow them, unless more of the text is left to read; in a prompt with wanted
        probabilities they are all tokens.
        """
        if self.text.is_scored:
            return self.size
        return 0 if self.count < self.text.left else 1 + len(self.proposed)

    @property
    def tokens(self) -> list[int]:
        """The tokens that are read."""
        read = self.text.read
        return [*self.text.tokens[read : read + self.count], *self.proposed]


def longest_part(texts: Sequence[Text], speculate: int, most: int | None) -> int:
    """Return the most tokens of a part of `share_step`, in this step and later ones.

    Attention pads all rows to the longest part, and caches need room for the padding.
    """
    left = max(text.left for text in texts)
    return max(1 + speculate, left if most is None else min(left, most))


def share_step(texts: Sequence[Text], speculate: int, most: int | None, scored: int) -> list[Part]:
    """Return the parts of a step of ``texts``, which has ``most`` tokens; None sets no limit.

    Texts with one token left come first, with up to ``speculate`` proposed tokens each. Prompts
    share the rest, at least one token, see `share_prompts`; those with wanted probabilities have at
    most ``scored`` tokens together.
    """
    alone = {text: text.propose(speculate) for text in texts if text.left == 1}
    left = None if most is None else max(1, most - sum(1 + len(own) for own in alone.values()))
    unread = {text: text.left for text in texts if text not in alone}
    for text in filter(lambda prompt: prompt.is_scored, unread):
        unread[text] = min(unread[text], scored)
        scored -= unread[text]
    counts = share_prompts([*unread.values()], left)
    shared = dict(zip(unread, counts, strict=True))
    return [Part(t, 1, alone[t]) if t in alone else Part(t, shared[t]) for t in texts]


def share_prompts(unread: Sequence[int], most: int | None) -> list[int]:
    """Return how many of the ``unread`` tokens of each prompt, oldest first, a step reads.

    They are at most ``most`` together; None sets no limit. The prompt with the fewest unread tokens
    comes first, so that short prompts do not wait for long ones. The oldest prompt has at least
    half, so that none waits forever.

    >>> share_prompts([1000, 900, 20], 100)
    [50, 30, 20]
    """
    if most is None or not unread:
        return [*unread]
    counts = [min(unread[0], (most + 1) // 2), *(0 for _ in unread[1:])]
    left = most - counts[0]
    for place in sorted(range(len(unread)), key=unread.__getitem__):
        more = min(unread[place] - counts[place], left)
        counts[place] += more
        left -= more
    return counts


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
    return _name(decoder, ids, mask, read + np.arange(size))


def feed_packed(decoder: Decoder, parts: Sequence[Part]) -> Fed:
    """Return the inputs of a step that reads parts of any sizes, of a graph of `pack_tokens`.

    Its scores are of the tokens that the parts ask for, in one row, or of the last token if none.
    """
    packed = _pack(tuple(part.size for part in parts), tuple(part.asked for part in parts))
    read = np.array([part.text.read for part in parts])
    totals = np.maximum(read + packed.sizes, 1)  # attention refuses a text without a token
    ids = np.array([[token for part in parts for token in part.tokens]], np.int64)
    mask = np.arange(totals.max()) < totals[:, None]
    positions = (read[packed.texts] + packed.within)[None]
    return {**_name(decoder, ids, mask, positions), **packed.inputs}


@dataclass(frozen=True)
class _Packed:
    """Texts in one row: their ``sizes``, and by token the number of its text and its place there.

    ``inputs`` are those that depend on nothing else.
    """

    sizes: Array
    texts: Array
    within: Array
    inputs: Fed


@lru_cache(maxsize=4)
def _pack(lengths: tuple[int, ...], asked: tuple[int, ...]) -> _Packed:
    """Return how parts of these lengths are packed; most steps have parts like the last one's."""
    sizes = np.array(lengths)
    ends, texts = sizes.cumsum(), np.repeat(np.arange(len(sizes)), sizes)
    starts, places = ends - sizes, np.arange(ends[-1])
    within = places - starts[texts]
    longest = np.minimum(np.arange(sizes.max()), np.maximum(sizes - 1, 0)[:, None])
    rows = np.minimum(starts[:, None] + longest, ends[-1] - 1)
    scored = np.concatenate([np.arange(end - n, end) for end, n in zip(ends, asked, strict=True)])
    inputs = {
        ROWS: np.stack([np.zeros_like(rows), rows], axis=-1),
        PLACES: np.stack([texts, within], axis=-1)[None],
        COUNTS: sizes.astype(np.int32),
        SCORED: (scored if scored.size else places[-1:])[None, :, None],
    }
    for array in inputs.values():
        array.flags.writeable = False
    return _Packed(sizes, texts, within, inputs)


def _name(decoder: Decoder, ids: Array, mask: Array, positions: Array) -> dict[str, Array]:
    arrays = {IDS: ids, MASK: mask, POSITIONS: positions}
    return {
        name: arrays[name].astype(dtype_of(tensor.dtype), copy=False)
        for name, tensor in decoder.inputs.items()
    }
