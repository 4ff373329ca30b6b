"""Of many pairs of layouts, which one is made from the other: `shared_tree.spread` as arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.layout.layout import REPLICATE, Layout
from tensoropt.compiler.layout.sizes import Size
from tensoropt.compiler.reshard.resharder import Resharder
from tensoropt.compiler.reshard.shared_tree import mixes
from tensoropt.compiler.reshard.shortest import Floats

__all__ = ["made_from"]

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_WHOLE = 0


def made_from(
    resharder: Resharder,
    shape: Sequence[Size],
    item_bytes: int,
    sources: Sequence[Layout],
    first: Layout,
    lasts: Sequence[Layout],
) -> Bools:
    """Say where `spread` from a source to ``first`` and a last layout makes that of the first.

    As [source, last], exactly as it does for each pair; false where the three are not distinct.
    O(s l m) for s sources, l last layouts and m that mix any of them.
    """
    source_of, last_of = dict.fromkeys(sources), dict.fromkeys(lasts)
    pairs = _Pairs(resharder, shape, item_bytes, [*source_of], first, [*last_of])
    rows = np.array([pairs.through_first(number) for number in range(len(source_of))])
    distinct = [[first not in (one, last) and one != last for last in last_of] for one in source_of]
    every = rows & np.array(distinct, dtype=np.bool_)
    return every[np.ix_(_places(sources), _places(lasts))]


class _Pairs:
    """The trees of `spread` from some sources to one first and one of some last layouts each.

    A *middle* is what a tree makes before both of them; there need be none.
    """

    def __init__(
        self,
        resharder: Resharder,
        shape: Sequence[Size],
        item_bytes: int,
        sources: Sequence[Layout],
        first: Layout,
        lasts: Sequence[Layout],
    ) -> None:
        ends = [*sources, first, *lasts]
        every = [*ends, *mixes(ends, shape, resharder.mesh)]
        self._times_s = resharder.table(shape, item_bytes, every, every)[0]
        self._first, self._lasts = len(sources), np.arange(len(sources) + 1, len(ends))
        self._middles = np.arange(len(ends), len(every))
        self._placed, self._number = _numbered(every)
        self._lies_as_last = self._placed[self._middles] == self._placed[self._lasts, None]

    def through_first(self, source: int) -> Bools:
        """Return which of the last layouts are made from the first one."""
        times_s, first = self._times_s, self._first
        middles = np.append(source, self._middles)  # made from itself: as if there were none
        first_s = np.minimum(times_s[source, first], times_s[middles, first])
        last_s = np.minimum(times_s[source, self._lasts], times_s[np.ix_(middles, self._lasts)]).T
        from_first, to_first = times_s[first, self._lasts], times_s[self._lasts, first]
        begun_s = times_s[source, middles]
        first_before = begun_s + first_s + np.minimum(last_s, from_first[:, None])
        last_before = begun_s + last_s + np.minimum(first_s, to_first[:, None])
        order, middle = self._best(source, np.stack([first_before, last_before], axis=1))
        through: Bools = (order == 0) & (from_first < last_s[np.arange(len(last_s)), middle])
        return through

    def _best(self, source: int, seconds: Floats) -> tuple[Ints, Ints]:
        """Return the order and the middle of the best tree to each last layout.

        ``seconds`` is [last, order, middle]; of equal ones the first counts, as for `spread`.
        """
        places, mixed = self._order_of_middles(source)
        seconds = np.where(mixed[:, None], seconds, np.inf)
        is_best = seconds == seconds.min(axis=(1, 2), keepdims=True)
        turn = np.stack([2 * places, 2 * places + 1])
        turns = np.where(is_best & mixed[:, None], turn, turn.max() + 1)
        order, middle = np.divmod(turns.reshape(len(turns), -1).argmin(axis=1), len(places))
        return order, middle

    def _order_of_middles(self, source: int) -> tuple[Ints, Bools]:
        """Return the places of the middles in the order of :func:`mixes`, none at all first, and
        which of them mix the layouts of a tree without being one, [last, middle]."""
        own = self._placed[self._middles]
        as_others = [own == _WHOLE, own == self._placed[source], own == self._placed[self._first]]
        digits = np.select(as_others, range(len(as_others)), len(as_others))
        base = len(as_others) + 1
        places = 1 + digits @ base ** np.arange(own.shape[1])[::-1]
        mixed = ((digits < len(as_others)) | self._lies_as_last).all(axis=2)
        numbers = self._number[self._middles]
        mixed &= (numbers != self._number[source]) & (numbers != self._number[self._first])
        mixed &= numbers != self._number[self._lasts, None]
        always = np.ones((len(mixed), 1), dtype=np.bool_)
        return np.append(0, places), np.concatenate([always, mixed], axis=1)


def _numbered(layouts: Sequence[Layout]) -> tuple[Ints, Ints]:
    """Return a number for what each axis does, as [layout, axis], and one for each layout."""
    known = {REPLICATE: _WHOLE}
    placed = [[known.setdefault(p, len(known)) for p in x.placements] for x in layouts]
    return np.array(placed), np.array(_places(layouts))


def _places(layouts: Sequence[Layout]) -> list[int]:
    """Return the place of each layout among those that differ."""
    place = {layout: number for number, layout in enumerate(dict.fromkeys(layouts))}
    return [place[layout] for layout in layouts]
