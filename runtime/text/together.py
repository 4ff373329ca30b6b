"""Which sequences go through a decoder together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from tensoropt.runtime.text.decoder import Decoder

__all__ = ["batches"]


def batches(
    lengths: Sequence[int], decoder: Decoder, limit: int, step_tokens: int | None
) -> list[list[int]]:
    """Return the numbers of the sequences that go together, of prompts of these ``lengths``.

    At most ``limit`` tokens follow each prompt. The sequences of a batch have at most
    ``step_tokens`` tokens at their ends, all together with padding, unless one has more by itself.
    A decoder that knows no padding takes prompts of one length together.
    """
    order = range(len(lengths))
    if decoder.pads:
        return list(_cut(order, lengths, decoder, limit, step_tokens))
    by_length = groupby(sorted(order, key=lambda n: lengths[n]), lambda n: lengths[n])
    return [
        batch
        for _, numbers in by_length
        for batch in _cut(numbers, lengths, decoder, limit, step_tokens)
    ]


def _cut(
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
