"""Inner steps of attention in blocks and in rings, for the cost model: one per node that runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tensoropt.compiler.layout.rule import InnerStep
from tensoropt.compiler.sharding.rule.arithmetic import sum_bytes
from tensoropt.compiler.sharding.rule.attending import block_rows, usual_rows

__all__ = ["Extents"]

_PASSES, _BACKWARD_PASSES = 3, 7
"""Passes over all scores: written, reduced, normalised, and read; then also their gradients."""

_SCORES, _BACKWARD_SCORES = 2, 3
"""Blocks of scores, softmax and gradients in memory at once."""

_JOINED = 1.25
"""Sums of a ring in memory while a block runs, as a share of the rank's result: the joined sum, and
the earlier blocks of a product, from none to half of a result."""

_KERNEL_ROWS, _KERNEL_CHUNKS, _KERNEL_KEYS = 3.0, 2.25, 2.0
"""The same while results of a kernel are joined: the sum, the result of the turn, and the new sum.
Chunks are joined in sequence, and so are gradients of keys and of values."""


@dataclass(frozen=True)
class Extents:
    """The sizes of an attention on which its inner steps depend.

    ``queries`` and ``keys`` are the factors that divide these before the sequence, ``sequence`` is
    the factor of the ring. A key has ``key`` elements of type ``dtype``, a value ``value``. If a
    kernel computes the turns, its gradient reads the result of the forward pass.
    """

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    sequence: int
    rows: int
    key: int
    value: int
    dtype: str
    item_bytes: int
    causal: bool
    by_kernel: bool = False

    @property
    def pairs(self) -> int | None:
        """The size of the factor of the ring if it has pairs of rows, which causal halves need."""
        return self.rows // 2 if self.causal else None

    @property
    def wide_bytes(self) -> int:
        """The bytes of an element of a sum."""
        return sum_bytes(self.dtype, self.item_bytes)

    @property
    def score_bytes(self) -> int:
        """The bytes of a score in the forward pass."""
        return self.item_bytes if self.dtype == "float16" else self.wide_bytes

    @property
    def _joined_rows(self) -> float:
        if self.by_kernel:
            return _KERNEL_CHUNKS if self.causal else _KERNEL_ROWS
        return _JOINED

    @property
    def _own(self) -> tuple[int, ...]:
        return *self.queries, self.sequence

    def turns(self) -> Iterator[InnerStep]:
        """Yield the passes over scores in the turns of a ring, and the memory of a block."""
        products, dims = 2 if self.causal else 1, (*self._own, self.sequence)
        for size, count in self._passes(self.score_bytes, _PASSES):
            # In zigzag order, a product has one row and one key of each pair of rows and of keys.
            yield InnerStep(self._ring, dims, size, "turn", times=count * products)
        yield self._chunk(_SCORES * self.score_bytes)

    def blocks(self, keys: int, *, gradients: bool = False) -> Iterator[InnerStep]:
        """Yield the passes over scores of attention in blocks, and the memory of a block.

        If the ``keys`` are of another sequence, the ranks have all of them.
        """
        share = 2 if self.causal else 1
        one, passes, blocks = self.score_bytes, _PASSES, _SCORES
        if gradients:
            one, passes, blocks = self.wide_bytes, _BACKWARD_PASSES, _BACKWARD_SCORES
        for size, count in self._passes(one, passes):
            yield self._step((), self._own, size * keys // share, "copy", times=count)
        sizes = self.key + self.value
        if keys != self.rows:
            most = usual_rows(sizes)
            yield InnerStep((), self._own, blocks * one * keys, "memory", most=most)
            return
        rows = block_rows(self.rows, sizes)
        seen = keys - rows if self.causal else keys  # by the last block, except its own rows
        size = blocks * one * rows * max(seen, rows) // keys
        for step in (
            self._step(self._ring, self._own, size, "memory"),
            *self._sums(1.0, gradients=gradients),
        ):
            yield replace(step, unsplit=True)
        yield self._chunk(blocks * one)

    def ring(self) -> Iterator[InnerStep]:
        """Yield the steps of a ring, in which keys and values travel."""
        yield from self._passed(self.key + self.value, self.item_bytes, 2)
        yield from self._joined()
        if self.causal:
            yield from self._exchanged(
                (self.queries, self.key * self.item_bytes),
                (self.keys, self.key * self.item_bytes),
                (self.keys, self.value * self.item_bytes),
                (self.queries, self.value * self.wide_bytes),
                (self.queries, self.wide_bytes),
            )
            yield from self._picked(self.key * self.item_bytes)
        yield from self._sums(self._joined_rows, gradients=False)
        yield from self._sent_ahead()
        if self.causal:
            yield from self._chosen(self.key)

    def ring_gradients(self) -> Iterator[InnerStep]:
        """Yield the steps of a ring, in which keys, values and their gradients travel."""
        size, wide = self.key + self.value, self.wide_bytes
        yield from self._passed(size, self.item_bytes, 2)
        messages = 4 if self.causal else 2
        yield from self._passed(size, wide, messages)
        travelled = *self.keys, self.sequence
        home = size * wide // messages
        yield self._step(self._ring, travelled, home, "collective_permute", times=messages)
        # Sums of the gradients of queries, and of keys and values.
        yield self._step(self._ring, self._own, 3 * self.key * wide // 2, "turn")
        yield self._step(
            self._ring, (*self.keys, self.sequence), 3 * size * wide // 2, "turn", times=2
        )
        if self.causal:
            result = self.value * self.item_bytes if self.by_kernel else wide
            rows = (self.key + self.value) * self.item_bytes + wide + result
            yield from self._exchanged(
                (self.queries, self.key * self.item_bytes),
                (self.keys, self.key * self.item_bytes),
                (self.keys, self.value * self.item_bytes),
                (self.queries, wide),
                (self.queries, result),
                (self.queries, self.value * self.item_bytes),
                (self.queries, self.key * wide),
                (self.keys, self.key * wide),
                (self.keys, self.value * wide),
            )
            yield from self._picked(rows)
        yield from self._sums(self._joined_rows, gradients=True)
        yield from self._sent_ahead()
        if self.causal:
            yield from self._chosen(size + (self.value if self.by_kernel else 0))

    def _passed(self, size: int, item_bytes: int, messages: int) -> Iterator[InnerStep]:
        """Yield the messages of a tensor of keys and values that all ranks pass on."""
        each = size * item_bytes // messages
        yield self._step(self._ring, (*self.keys, self.sequence), each, "ring", times=messages)

    def _joined(self) -> Iterator[InnerStep]:
        """Yield the passes that join the result of a turn with earlier ones."""
        times = 3 if self.causal else 1
        rows = 3 * self.wide_bytes // (4 if self.causal else 2)
        yield self._step(self._ring, self._own, rows, "turn", times=7 * times)
        yield self._step(self._ring, self._own, rows * self.value, "turn", times=3 * times)

    def _exchanged(self, *tensors: tuple[tuple[int, ...], int]) -> Iterator[InnerStep]:
        """Yield the messages and copies that exchange chunks."""
        for lead, size in tensors:
            dims = *lead, self.sequence
            yield self._step(self._ring, dims, size // 2, "collective_permute", times=2)
            yield self._step(self._ring, dims, size, "copy", times=3)

    def _picked(self, row_bytes: int) -> Iterator[InnerStep]:
        """Yield the copies of chunks that a rank picks in each turn."""
        size = (self.key + self.value) * self.item_bytes
        yield self._step(self._ring, self._own, row_bytes // 2, "turn")
        yield self._step(self._ring, (*self.keys, self.sequence), size // 2, "turn", times=2)

    def _sums(self, share: float, *, gradients: bool) -> Iterator[InnerStep]:
        """Yield the memory of sums that become results, beyond operands and results.

        While a block runs, ``share`` of each result is a sum, in a wider type, and the result is
        not there yet. Keys of other ranks take the place of the rank's own. Gradients in blocks
        need the result of the forward pass only for a sum per row, so its memory is free by then.
        """
        more = round(share * self.wide_bytes) - self.item_bytes
        if gradients:
            freed = 0 if self.by_kernel else self.value * self.item_bytes
            share = min(share, _KERNEL_KEYS)
            per_key = (self.key + self.value) * (round(share * self.wide_bytes) - self.item_bytes)
            yield from self._occupied(self.key * more - freed, per_key)
        else:
            yield from self._occupied(self.value * more, 0)

    def _chosen(self, size: int) -> Iterator[InnerStep]:
        """Yield the memory of the chunks of a turn: of rows of ``size``, and of keys and values."""
        half = self.item_bytes / 2
        yield from self._occupied(round(size * half), round((self.key + self.value) * half))

    def _sent_ahead(self) -> Iterator[InnerStep]:
        """Yield the memory of the keys and values of the next turn, if they are sent ahead."""
        if self.by_kernel:
            yield from self._occupied(0, (self.key + self.value) * self.item_bytes)

    def _occupied(self, row_bytes: int, key_bytes: int) -> Iterator[InnerStep]:
        """Yield memory per row of queries, and per key."""
        for lead, size in ((self.queries, row_bytes), (self.keys, key_bytes)):
            if size > 0:
                yield self._step(self._ring, (*lead, self.sequence), size, "memory")

    def _chunk(self, score_bytes: int) -> InnerStep:
        """Return the memory of a block of scores in a turn of a ring.

        If causal, the keys are half of a part: one for each pair of rows.
        """
        dims, most = (*self._own, self.sequence), usual_rows(self.key + self.value)
        return InnerStep(self._ring, dims, score_bytes, "memory", most=most)

    def _passes(self, score_bytes: int, count: int) -> Iterator[tuple[int, int]]:
        """Yield the bytes per score of passes that read and write all scores, and their number.

        Products read and write scores in the type of queries, so others are cast.
        """
        yield score_bytes, count
        if self.item_bytes < score_bytes:
            yield (self.item_bytes + score_bytes) // 2, 2

    def _step(
        self, factors: tuple[int, ...], dims: tuple[int, ...], size: int, kind: str, times: int = 1
    ) -> InnerStep:
        """Return a step of ``size`` bytes per place; a causal sequence is split in pairs."""
        places = (2 if self.causal else 1) ** dims.count(self.sequence)
        return InnerStep(factors, dims, size * places, kind, times=times)

    @property
    def _ring(self) -> tuple[int, ...]:
        return (self.sequence,)
