"""The caches of the texts of a batch on one rank: texts join and leave between steps."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tensoropt.runtime.device.provider import CPU, Box, PlacedArray
from tensoropt.runtime.text.decoder import Cache
from tensoropt.runtime.text.scheduling import Text
from tensoropt.runtime.text.shared_memory import gather
from tensoropt.runtime.text.steps import Caches, Steps

__all__ = ["Rows"]


@dataclass(frozen=True)
class _Source:
    """The first ``count`` of the ``read`` tokens of a row."""

    caches: Caches
    row: int
    read: int
    count: int


class Rows:
    """The caches of a batch of at most ``slots`` texts; `order` has the text of each row.

    Further rows fill the batch up. Caches that are updated in place have free rows: a text that
    joins is copied to one of them, and the row of a text that leaves is taken by the last one. If
    it `keeps` caches, texts that have ended stay in the rows after the batch.
    """

    def __init__(self, steps: Steps, slots: int) -> None:
        self._steps, self._mesh, self._slots = steps, steps.mesh, slots
        self.order: list[Text] = []
        self._block: Caches | None = None
        self._caches: Caches | None = None  # the first rows of the block
        self._places: dict[Text, tuple[Caches, int]] = {}  # also of texts that have just joined
        decoder = steps.decoder  # all its caches: the ranks of all stages arrange the same rows
        self._has_free = all(
            cache.in_place and cache.row_dim == 0 and not _is_split(cache)
            for cache in decoder.caches
        )
        # A step writes to rows that fill the batch up.
        is_exact = all(decoder.rows(size) == size for size in range(1, slots + 1))
        self.keeps = self._has_free and is_exact

    def join(self, text: Text, caches: Caches) -> None:
        """Take the caches of a text that joins the batch or is kept, as their row 0."""
        self._places[text] = caches, 0

    def forget_others(self, texts: Collection[Text]) -> None:
        """Forget all texts but these. A row of the batch is freed when its texts are arranged."""
        self._places = {text: place for text, place in self._places.items() if text in texts}

    def arrange(self, texts: Sequence[Text], kept: Sequence[Text] = (), spare: int = 0) -> Caches:
        """Return the caches of ``texts``, by `order`; ``kept`` ones have rows after them.

        All of them, one at least, have joined; others are forgotten. The caches are arranged again
        only if the texts have changed. Rows of several texts then have room for ``spare`` more
        tokens.
        """
        self.forget_others({*texts, *kept})
        is_placed = all(self._places[text][0] is self._block for text in kept)
        if self._caches is None or {*texts} != {*self.order} or not is_placed:
            self.order = _fill(self.order, texts)
            places = self._places.items()
            before = {row: text for text, (caches, row) in places if caches is self._block}
            rows = _add_kept(self.order, before, kept)
            self._block = self._arranged(before, rows, spare)
            self._caches = self._first_rows(self._steps.decoder.rows(max(1, len(texts))))
            self._places = {text: (self._block, row) for row, text in rows.items()}
        return self._caches

    def clear(self) -> None:
        """Forget all texts, and free their caches."""
        self.order, self._block, self._caches, self._places = [], None, None, {}

    def copy(self, text: Text, count: int, room: int) -> Caches:
        """Return caches of one row: the first ``count`` tokens of a text, with ``room``."""
        return self._place(1, room, {0: _Source(*self._places[text], text.read, count)})

    def _arranged(
        self, before: Mapping[int, Text], texts: Mapping[int, Text], spare: int
    ) -> Caches:
        """Return caches with ``texts`` in their rows, given the texts of the block ``before``."""
        rows = self._steps.decoder.rows(1 + max(texts))
        if [*texts] == [0]:
            alone = self._places[texts[0]][0]
            if alone is not self._block and alone.rows == rows:
                return alone
        needed = [text.room + spare for text in self.order]
        room = max([*needed, *(text.read for text in texts.values())])
        sources = {
            row: _Source(*self._places[text], text.read, text.read) for row, text in texts.items()
        }
        if self._block is None or not self._fits(self._block, rows, room):
            if self._has_free:  # for texts that join later
                rows = max(rows, self._steps.decoder.rows(min(2 * rows, self._slots)))
            return self._place(rows, room, sources)
        moves = {row: own for row, own in sources.items() if before.get(row) is not texts[row]}
        with self._steps.provider.defer_waits():
            for cache in self._steps.caches:
                self._refill(cache, self._block, moves)
        return self._block

    def _fits(self, block: Caches, rows: int, room: int) -> bool:
        rooms = (block.placed[cache.past.name].shape[cache.dim] for cache in self._steps.caches)
        return self._has_free and block.rows >= rows and all(size >= room for size in rooms)

    def _refill(self, cache: Cache, block: Caches, moves: Mapping[int, _Source]) -> None:
        """Copy texts to new rows of the block. A row is read before it is written."""
        target, left = block.placed[cache.past.name], dict(moves)
        while left:
            unread = {own.row: row for row, own in left.items() if own.caches is block}
            row = next((row for row in left if row not in unread), None)
            if row is None:  # texts take each other's rows
                row = next(iter(left))
                own = left[unread[row]]
                moved = {cache.past.name: self._move(cache, 1, own.count, {0: own})}
                left[unread[row]] = replace(own, caches=Caches(1, moved), row=0)
            own = left.pop(row)
            _copy(cache, target, row, self._steps.part(cache, own.caches), own)

    def _first_rows(self, rows: int) -> Caches:
        assert self._block is not None
        if self._block.rows == rows:
            return self._block
        return Caches(rows, {name: own.first(rows) for name, own in self._block.placed.items()})

    def _place(self, rows: int, room: int, sources: Mapping[int, _Source]) -> Caches:
        """Return new caches, with tokens of the sources in their rows."""
        found = Caches(rows)
        for cache in self._steps.caches:
            found.placed[cache.past.name] = self._move(cache, rows, room, sources)
        return found

    def _move(
        self, cache: Cache, rows: int, room: int, sources: Mapping[int, _Source]
    ) -> PlacedArray:
        """Return this rank's part of a cache with the tokens of the sources.

        If rows or tokens are split between ranks, the whole cache is arranged in shared memory.
        """
        layout, is_whole = cache.past.layout, _is_split(cache)
        parts: dict[int, PlacedArray] = {}
        for caches in (source.caches for source in sources.values()):
            if id(caches) not in parts:
                part = self._steps.part(cache, caches)
                whole = CPU.place(gather(self._mesh, part.get(), layout)) if is_whole else part
                parts[id(caches)] = whole
        size = room if cache.in_place else max(source.count for source in sources.values())
        shape = self._steps.shape(cache, rows, size)
        provider = CPU if is_whole else self._steps.provider
        dtype = next(iter(parts.values())).dtype
        with provider.defer_waits():
            target = provider.zeros(shape if is_whole else layout.local_shape(shape), dtype)
            for row, source in sources.items():
                _copy(cache, target, row, parts[id(source.caches)], source)
        if not is_whole:
            return target
        return self._steps.provider.place(layout.local_slice(target.get(), self._mesh.rank))


def _fill(before: Sequence[Text], texts: Sequence[Text]) -> list[Text]:
    """Return ``texts`` in the order of rows: new ones, then the last ones, in rows of others.

    A text is moved to a lower row only, so a row is read before it is written in this order.
    """
    old, kept = {*before}, {*texts}
    new = [text for text in texts if text not in old]
    rows: list[Text | None] = [text if text in kept else None for text in before]
    for row, text in enumerate(rows):
        if text is None and new:
            rows[row] = new.pop(0)
    while None in rows:
        last = rows.pop()
        if last is not None:
            rows[rows.index(None)] = last
    return [*filter(None, rows), *new]


def _add_kept(
    order: Sequence[Text], before: Mapping[int, Text], kept: Sequence[Text]
) -> dict[int, Text]:
    """Return the text of each row: texts of ``order``, then ``kept`` ones.

    A kept text stays in its row of the rows ``before`` if it can, or else takes the first free one.
    """
    rows = dict(enumerate(order))
    rows |= {row: text for row, text in before.items() if row not in rows and text in kept}
    free = (row for row in itertools.count(len(order)) if row not in rows)
    left = [text for text in kept if text not in rows.values()]
    return rows | {row: text for text, row in zip(left, free, strict=False)}


def _is_split(cache: Cache) -> bool:
    """Return True if rows or tokens are split between ranks."""
    layout = cache.past.layout
    return layout.pieces(cache.row_dim) > 1 or layout.pieces(cache.dim) > 1


def _copy(cache: Cache, target: PlacedArray, row: int, part: PlacedArray, source: _Source) -> None:
    """Copy the tokens of a source, in ``part`` of its caches, to a row of ``target``."""
    old = _tokens(cache, part.shape, source.row, source.read, source.count)
    new = _tokens(cache, target.shape, row, source.count, source.count)
    target.copy_box(new, part, old)


def _tokens(cache: Cache, shape: tuple[int, ...], row: int, read: int, count: int) -> Box:
    """Return the box of the first ``count`` of ``read`` tokens of a row, in a cache of ``shape``.

    Tokens come first in a cache that is updated in place, and last in one that grows.
    """
    start = 0 if cache.in_place else shape[cache.dim] - read
    box = [slice(0, size) for size in shape]
    box[cache.row_dim] = slice(row, row + 1)
    box[cache.dim] = slice(start, start + count)
    return tuple(box)
