"""Attention over a sequence that is split: keys and values travel from rank to rank.

Each rank has some rows, and the keys and values of the same places. In each turn, it attends to the
keys that it has at that time, joins the result with earlier results, and sends the keys to the next
rank (Liu et al., arXiv 2310.01889). After one turn per rank, all rows have seen all keys. No rank
ever has all keys.

If rows see no later keys, most of the pairs of the first ranks are empty, and the last rank sets
the pace. The parts are then exchanged first, so that each of ``n`` ranks has a chunk from the start
and one from the end: chunks ``r`` and ``2 n - 1 - r`` (zigzag order). Rank ``r`` needs two products
of chunks in every turn but its first: its later rows see the earlier chunk of all ranks; besides,
its earlier rows see the earlier chunk of a rank before it, or its later rows the later chunk of a
rank after it. So all ranks run the same program, which computes no pair that is hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.attending import Gradients, Part, mask_value
from tensoropt.dialects.build import shape_of, sizes_of
from tensoropt.dialects.mlir import ir

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Attends", "Ring"]

_Mask = TypeVar("_Mask")

_CHUNKS = 2
"""Chunks that each rank has in zigzag order."""


class Attends(Protocol[_Mask]):
    """Builder of attention to the keys of one turn, and of sums over turns.

    A mask says which keys are hidden. Rows of gradients are the operands of a gradient along the
    rows of queries.
    """

    @property
    def key_dim(self) -> int:
        """The dimension of keys along the sequence, from the end."""

    @property
    def sends_ahead(self) -> bool:
        """True if the keys of the next turn are sent before the attention of a turn."""

    def all(self, q: ir.Value, k: ir.Value, v: ir.Value, mask: _Mask | None = None) -> Part:
        """Return the attention to all keys that a mask does not hide."""

    def causal(self, q: ir.Value, k: ir.Value, v: ir.Value) -> Part:
        """Return the attention to the keys at or before each row."""

    def joined(self, a: Part, b: Part) -> Part:
        """Return the attention of the same rows to the keys of both parts."""

    def at_keys(self, mask: _Mask, places: ir.Value) -> _Mask:
        """Return the mask of the keys at ``places`` of the sequence, int64."""

    def all_gradients(
        self, q: ir.Value, k: ir.Value, v: ir.Value, rows: Sequence[ir.Value],
        mask: _Mask | None = None,
    ) -> Gradients:  # fmt: skip
        """Return the gradients of :meth:`all`."""

    def causal_gradients(
        self, q: ir.Value, k: ir.Value, v: ir.Value, rows: Sequence[ir.Value]
    ) -> Gradients:
        """Return the gradients of :meth:`causal`."""

    def added(self, a: Gradients, b: Gradients) -> Gradients:
        """Return the sums of gradients over the same rows and keys."""


@dataclass(frozen=True)
class Ring(Generic[_Mask]):
    """Builder of attention over parts along ``axes``; ``attending`` builds one turn."""

    make: Arithmetic
    attending: Attends[_Mask]
    axes: tuple[int, ...]

    def all(self, q: ir.Value, k: ir.Value, v: ir.Value, mask: _Mask | None = None) -> Part:
        """Return the attention to all keys. ``mask`` has the rank's rows, and all keys."""
        part: Part | None = None
        turns = self._turns(k, v)
        for turn, k, v in turns:
            found = self.attending.all(q, k, v, self._keys_of_turn(mask, v, turn))
            part = found if part is None else self.attending.joined(part, found)
        assert part is not None
        return part

    def causal(self, q: ir.Value, k: ir.Value, v: ir.Value) -> Part:
        """Return the attention to the keys at or before each row."""
        q, k, v = self._zigzag(q, -2), self._zigzag(k, self._key_dim), self._zigzag(v, -2)
        turns = self._turns(k, v)
        next(turns)  # of the rank's own keys
        (early, late), attend = self._halves(q, -2), self.attending
        (near, far), (near_v, far_v) = self._halves(k, self._key_dim), self._halves(v, -2)
        first = attend.causal(early, near, near_v)
        last = attend.joined(attend.all(late, near, near_v), attend.causal(late, far, far_v))
        for turn, k, v in turns:
            near, near_v = self._halves(k, self._key_dim)[0], self._halves(v, -2)[0]
            last = attend.joined(last, attend.all(late, near, near_v))
            found = attend.all(*self._picked(q, k, v, turn))
            first = attend.joined(first, self._if(found, turn, wanted=True))
            last = attend.joined(last, self._if(found, turn, wanted=False))
        return Part(
            *(self._in_order(self._both(*own, -2), -2) for own in zip(first, last, strict=True))
        )

    def all_gradients(
        self, q: ir.Value, k: ir.Value, v: ir.Value, rows: Sequence[ir.Value],
        mask: _Mask | None = None,
    ) -> Gradients:  # fmt: skip
        """Return the gradients of :meth:`all`; gradients of keys and values travel with these."""
        total: Gradients | None = None
        turns = self._turns(k, v)
        for turn, k, v in turns:
            if total is not None:
                total = Gradients(total.query, self._next(total.key), self._next(total.value))
            own = self._keys_of_turn(mask, v, turn)
            found = self.attending.all_gradients(q, k, v, rows, own)
            total = found if total is None else self.attending.added(total, found)
        assert total is not None
        return Gradients(total.query, self._next(total.key), self._next(total.value))

    def causal_gradients(
        self, q: ir.Value, k: ir.Value, v: ir.Value, rows: Sequence[ir.Value]
    ) -> Gradients:
        """Return the gradients of :meth:`causal`."""
        q, k, v = self._zigzag(q, -2), self._zigzag(k, self._key_dim), self._zigzag(v, -2)
        rows = [self._zigzag(x, -2) for x in rows]
        turns = self._turns(k, v)
        next(turns)  # of the rank's own keys
        (early, late), attend = self._halves(q, -2), self.attending
        (near, far), (near_v, far_v) = self._halves(k, self._key_dim), self._halves(v, -2)
        early_rows, late_rows = zip(*(self._halves(x, -2) for x in rows), strict=True)
        first = attend.causal_gradients(early, near, near_v, early_rows)
        cross = attend.all_gradients(late, near, near_v, late_rows)
        last = attend.causal_gradients(late, far, far_v, late_rows)
        query = [first.query, self.make.add(cross.query, last.query)]
        key = [self.make.add(first.key, cross.key), last.key]
        value = [self.make.add(first.value, cross.value), last.value]
        for turn, k, v in turns:
            key, value = [self._next(x) for x in key], [self._next(x) for x in value]
            near, near_v = self._halves(k, self._key_dim)[0], self._halves(v, -2)[0]
            cross = attend.all_gradients(late, near, near_v, late_rows)
            query[1] = self.make.add(query[1], cross.query)
            key[0], value[0] = (
                self.make.add(key[0], cross.key),
                self.make.add(value[0], cross.value),
            )
            own_rows = [self._pick(x, -2, turn) for x in rows]
            found = attend.all_gradients(*self._picked(q, k, v, turn), own_rows)
            for place, wanted in enumerate((True, False)):
                own = Gradients(*(self._or(x, 0.0, turn, wanted=wanted) for x in found))
                query[place] = self.make.add(query[place], own.query)
                key[place] = self.make.add(key[place], own.key)
                value[place] = self.make.add(value[place], own.value)
        home = [self._next(x) for x in key], [self._next(x) for x in value]
        sums = (query, -2), (home[0], self._key_dim), (home[1], -2)
        return Gradients(*(self._in_order(self._both(a, b, dim), dim) for (a, b), dim in sums))

    @property
    def _key_dim(self) -> int:
        return self.attending.key_dim

    @cached_property
    def ranks(self) -> int:
        return self.make.local.mesh.extent(self.axes)

    def _turns(self, k: ir.Value, v: ir.Value) -> Iterator[tuple[int, ir.Value, ir.Value]]:
        """Yield each turn with its keys and values, which are sent when it begins, or ahead."""
        for turn in range(self.ranks - 1):
            ahead = self._send(k, v) if self.attending.sends_ahead else None
            yield turn, k, v
            k, v = ahead or self._send(k, v)
        yield self.ranks - 1, k, v

    def _send(self, k: ir.Value, v: ir.Value) -> tuple[ir.Value, ir.Value]:
        return self._next(k), self._next(v)

    def _next(self, x: ir.Value) -> ir.Value:
        """Return the ``x`` of the rank before."""
        sources = [(rank - 1) % self.ranks for rank in range(self.ranks)]
        return self._permuted(x, sources)

    def _permuted(self, x: ir.Value, sources: Sequence[int]) -> ir.Value:
        return self.make.local.collective("collective_permute", x, self.axes, sources=sources)

    def _constant(self, values: npt.NDArray[np.generic]) -> ir.Value:
        return self.make.local.axis_constant(values, self.axes)

    def _keys_of_turn(self, mask: _Mask | None, v: ir.Value, turn: int) -> _Mask | None:
        """Return the mask of the keys that the rank has in a turn."""
        import numpy as np

        if mask is None:
            return None
        ranks, part = np.arange(self.ranks), sizes_of(v)[-2]
        starts = (ranks - turn) % self.ranks * part
        places = self._constant(starts.reshape(-1, 1) + np.arange(part))
        return self.attending.at_keys(mask, places)

    def _halves(self, x: ir.Value, dim: int) -> tuple[ir.Value, ir.Value]:
        dim += len(shape_of(x))
        size = sizes_of(x)[dim]
        half = size // _CHUNKS
        return self.make.slice(x, dim, 0, half), self.make.slice(x, dim, half, size)

    def _both(self, a: ir.Value, b: ir.Value, dim: int) -> ir.Value:
        return self.make.concat([a, b], dim + len(shape_of(a)))

    def _comes_before(self, turn: int) -> npt.NDArray[np.bool_]:
        """Return, per rank, whether the keys of a turn come from a rank before it."""
        import numpy as np

        return np.arange(self.ranks) >= turn

    def _picked(
        self, q: ir.Value, k: ir.Value, v: ir.Value, turn: int
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        return self._pick(q, -2, turn), self._pick(k, self._key_dim, turn), self._pick(v, -2, turn)

    def _pick(self, x: ir.Value, dim: int, turn: int) -> ir.Value:
        """Return the earlier chunk of ``x`` if the keys come from a rank before, else the later."""
        import numpy as np

        dim += len(shape_of(x))
        half = sizes_of(x)[dim] // _CHUNKS
        starts = np.where(self._comes_before(turn), 0, half)
        return self.make.take(x, self._constant(starts.reshape(-1, 1) + np.arange(half)), dim)

    def _if(self, part: Part, turn: int, *, wanted: bool) -> Part:
        """Return ``part`` if the keys come from a rank before, or after; else a part of no keys."""
        return Part(part.y, self._or(part.total, mask_value(part.total), turn, wanted=wanted))

    def _or(self, x: ir.Value, other: float, turn: int, *, wanted: bool) -> ir.Value:
        """Return ``x`` if the keys come from a rank before, or after; else ``other`` throughout."""
        flags = self._constant((self._comes_before(turn) == wanted).reshape(-1, 1))
        return self.make.where(flags, x, self.make.scalar(other, x))

    def _zigzag(self, x: ir.Value, dim: int) -> ir.Value:
        """Return the rank's chunks of ``x`` in zigzag order, from its part of the sequence."""
        return self._exchanged(x, dim, self._in_sequence, self._in_zigzag)

    def _in_order(self, x: ir.Value, dim: int) -> ir.Value:
        """Return the rank's part of the sequence, from its chunks in zigzag order."""
        return self._exchanged(x, dim, self._in_zigzag, self._in_sequence)

    @property
    def _in_sequence(self) -> list[list[int]]:
        return [[_CHUNKS * rank, _CHUNKS * rank + 1] for rank in range(self.ranks)]

    @property
    def _in_zigzag(self) -> list[list[int]]:
        return [[rank, _CHUNKS * self.ranks - 1 - rank] for rank in range(self.ranks)]

    def _exchanged(
        self, x: ir.Value, dim: int, before: list[list[int]], after: list[list[int]]
    ) -> ir.Value:
        """Return the chunks ``after`` of each rank, from the chunks ``before``.

        Each rank sends one chunk in each of two messages.
        """
        import numpy as np

        dim += len(shape_of(x))
        half = sizes_of(x)[dim] // _CHUNKS
        inside = np.arange(half)
        received, held = [], list[list[int]]()
        for chunks in _messages(before, after):
            starts = [own.index(chunk) * half for own, chunk in zip(before, chunks, strict=True)]
            sent = self.make.take(x, self._constant(np.array(starts).reshape(-1, 1) + inside), dim)
            sources = [next(s for s, c in enumerate(chunks) if c in own) for own in after]
            received.append(self._permuted(sent, sources))
            held.append([chunks[source] for source in sources])
        places = [
            [half * next(m for m, own in enumerate(held) if own[rank] == chunk) for chunk in chunks]
            for rank, chunks in enumerate(after)
        ]
        rows = (np.array(places)[:, :, None] + inside).reshape(self.ranks, -1)
        return self.make.take(self.make.concat(received, dim), self._constant(rows), dim)


def _messages(before: list[list[int]], after: list[list[int]]) -> list[list[int]]:
    """Return the chunk that each rank sends in each of two messages.

    In each message, every rank sends one chunk and receives one. Chunks that a rank sends and
    chunks that a rank receives are in different messages, so these alternate along each cycle.
    """
    target = {chunk: rank for rank, own in enumerate(after) for chunk in own}
    message: dict[int, int] = {}
    for own in before:
        chunk, turn = own[0], 0
        while chunk not in message:
            message[chunk] = turn
            held = after[target[chunk]]
            chunk = held[1 - held.index(chunk)]  # the other chunk of the receiver
            message[chunk] = 1 - turn
            sender = next(owned for owned in before if chunk in owned)
            chunk = sender[1 - sender.index(chunk)]  # the other chunk of its sender
    return [[next(c for c in own if message[c] == turn) for own in before] for turn in range(2)]
