"""Grouping of sequences into batches of a decoder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from tensoropt.runtime.text.decoder import Decoder

__all__ = ["batches"]


def batches(
    lengths: Sequence[int], decoder: Decoder, limit: int, step_tokens: int | None
) -> list[list[int]]:
    """Return the batches, as lists of sequence numbers, for prompts of these ``lengths``.

    At most ``limit`` tokens follow each prompt. The finished sequences of a batch, with padding,
    have at most ``step_tokens`` tokens in total, unless it is a single sequence. A decoder without
    padding gets batches of prompts of the same length.
    """
    order = range(len(lengths))
    if decoder.pads:
        return list(_split(order, lengths, decoder, limit, step_tokens))
    by_length = groupby(sorted(order, key=lambda n: lengths[n]), lambda n: lengths[n])
    return [
        batch
        for _, numbers in by_length
        for batch in _split(numbers, lengths, decoder, limit, step_tokens)
    ]


def _split(
    numbers: Iterable[int],
    lengths: Sequence[int],
    decoder: Decoder,
    limit: int,
    step_tokens: int | None,
) -> Iterator[list[int]]:
    batch: list[int] = []
    longest = 0
    for number in numbers:
        longest = max(longest, lengths[number])
        tokens = (len(batch) + 1) * (longest + limit)
        is_full = len(batch) == decoder.batch
        if batch and (is_full or (step_tokens is not None and tokens > step_tokens)):
            yield batch
            batch, longest = [], lengths[number]
        batch.append(number)
    if batch:
        yield batch
