"""The caches of the texts of a batch on one rank: texts join and leave between steps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

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
    """The caches of a batch: text n has row n, and further rows fill the batch up."""

    def __init__(self, steps: Steps) -> None:
        self._steps, self._mesh = steps, steps.mesh
        self._texts: list[Text] = []
        self._caches: Caches | None = None
        self._places: dict[Text, tuple[Caches, int]] = {}  # also of texts that have just joined

    def join(self, text: Text, caches: Caches) -> None:
        """Take the caches of a text that joins the batch, as their row 0."""
        self._places[text] = caches, 0

    def keep(self, texts: Collection[Text]) -> None:
        """Forget all texts but these. A row of the batch is freed when its texts are arranged."""
        self._places = {text: place for text, place in self._places.items() if text in texts}

    def arrange(self, texts: Sequence[Text], spare: int = 0) -> Caches:
        """Return the caches of ``texts``, which have joined; others are forgotten.

        The caches are arranged again only if the texts have changed. Those of several texts then
        have room for ``spare`` more tokens.
        """
        if self._caches is None or self._texts != texts:
            self._caches = self._take(texts, spare)
            self._texts = [*texts]
            self._places = {text: (self._caches, row) for row, text in enumerate(texts)}
        return self._caches

    def clear(self) -> None:
        """Forget all texts, and free their caches."""
        self._texts, self._caches, self._places = [], None, {}

    def copy(self, text: Text, count: int, room: int) -> Caches:
        """Return caches of one row: the first ``count`` tokens of a text, with ``room``."""
        return self._place(1, room, [_Source(*self._places[text], text.read, count)])

    def _take(self, texts: Sequence[Text], spare: int) -> Caches:
        rows = self._steps.decoder.rows(len(texts))
        alone = self._places[texts[0]][0]
        if len(texts) == 1 and alone is not self._caches and alone.rows == rows:
            return alone
        wanted = [_Source(*self._places[text], text.read, text.read) for text in texts]
        return self._place(rows, max(text.room for text in texts) + spare, wanted)

    def _place(self, rows: int, room: int, sources: Sequence[_Source]) -> Caches:
        """Return new caches, with tokens of the sources in the first rows."""
        found = Caches(rows)
        for cache in self._steps.caches:
            found.placed[cache.past.name] = self._move(cache, rows, room, sources)
        return found

    def _move(self, cache: Cache, rows: int, room: int, sources: Sequence[_Source]) -> PlacedArray:
        """Return this rank's part of a cache with the tokens of the sources.

        If rows or tokens are split between ranks, the whole cache is arranged in shared memory.
        """
        layout = cache.past.layout
        is_whole = layout.pieces(cache.row_dim) > 1 or layout.pieces(cache.dim) > 1
        parts: dict[int, PlacedArray] = {}
        for caches in (source.caches for source in sources):
            if id(caches) not in parts:
                part = self._steps.part(cache, caches)
                whole = CPU.place(gather(self._mesh, part.get(), layout)) if is_whole else part
                parts[id(caches)] = whole
        size = room if cache.in_place else max(source.count for source in sources)
        shape = self._steps.shape(cache, rows, size)
        provider = CPU if is_whole else self._steps.provider
        first = parts[id(sources[0].caches)]
        with provider.defer_waits():
            target = provider.zeros(shape if is_whole else layout.local_shape(shape), first.dtype)
            for row, source in enumerate(sources):
                part = parts[id(source.caches)]
                old = _tokens(cache, part.shape, source.row, source.read, source.count)
                new = _tokens(cache, target.shape, row, source.count, source.count)
                target.copy_box(new, part, old)
        if not is_whole:
            return target
        return self._steps.provider.place(layout.local_slice(target.get(), self._mesh.rank))


def _tokens(cache: Cache, shape: tuple[int, ...], row: int, read: int, count: int) -> Box:
    """Return the box of the first ``count`` of ``read`` tokens of a row, in a cache of ``shape``.

    Tokens come first in a cache that is updated in place, and last in one that grows.
    """
    start = 0 if cache.in_place else shape[cache.dim] - read
    box = [slice(0, size) for size in shape]
    box[cache.row_dim] = slice(row, row + 1)
    box[cache.dim] = slice(start, start + count)
    return tuple(box)
