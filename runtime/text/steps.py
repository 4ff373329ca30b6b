"""Steps of a decoder on one rank: inputs of its session, and state between runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tensoropt.runtime.device.provider import PlacedArray, Provider
from tensoropt.runtime.layout.mesh_layout import MeshLayout
from tensoropt.runtime.session.session import RankSession
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.text.batch import Batch, Fed
from tensoropt.runtime.text.decoder import IDS, Cache, Decoder

__all__ = ["Steps"]


class Steps:
    """Runs a decoder's session on a rank; caches stay on the device between steps."""

    def __init__(
        self,
        session: RankSession,
        decoder: Decoder,
        provider: Provider,
        rank: int,
        dims: Mapping[str, int],
    ) -> None:
        self.decoder, self._session, self._provider = decoder, session, provider
        self._rank, self._dims = rank, dims
        self._moved = {c.present.name: c.past.name for c in decoder.caches if not c.in_place}
        self._placed: dict[str, PlacedArray] = {}  # caches that are empty or updated in place
        self._fed: dict[str, PlacedArray] = {}
        self._row: PlacedArray | None = None  # the scores of a step of single tokens
        self._vocabulary = int(decoder.scores.shape[2])

    def begin(self, batch: Batch) -> None:
        """Clear the caches; caches that are updated in place get room for all tokens."""
        for cache in self.decoder.caches:
            tokens = batch.room if cache.in_place else 0
            array = self._room(cache, batch.count, tokens)
            array.zero()
            self._bind(cache, array)

    def run(self, fed: Fed) -> None:
        """Take one step with whole inputs."""
        for name, array in fed.items():
            self._feed(name, self.decoder.inputs[name].layout.part_of(array, self._rank))
        self._bind_scores(fed[IDS].shape)
        self._session.run()
        self._session.pass_on(self._moved)

    def scores(self) -> Array:
        """Return this rank's part of the scores of the last run's last token."""
        if self._row is not None:
            return self._row.get()
        ((_, scores),) = self._session.results([self.decoder.scores.name])
        return scores[:, -1:]

    def cache(self, cache: Cache) -> tuple[MeshLayout, Array]:
        """Return this rank's part of a cache after the last run, on the host."""
        if cache.in_place:
            return cache.past.layout, self._placed[cache.past.name].get()
        ((_, part),) = self._session.results([cache.present.name])
        return cache.past.layout, part

    def take_over(self, caches: Sequence[Cache], other: Steps) -> None:
        """Continue with the caches of another decoder's last run, which have the same layout."""
        made = other._session.values([cache.present.name for cache in caches])
        for cache in caches:
            if cache.in_place:
                self._bind(cache, other._placed[cache.past.name])
            else:
                self._session.read_value(cache.past.name, made[cache.present.name])

    def put(self, cache: Cache, part: Array) -> None:
        """Continue with a cache; ``part`` is this rank's part and is copied."""
        array = self._room(cache, 0, 0, part.shape)
        array.put(part)
        self._bind(cache, array)

    def release(self) -> None:
        """Release the results of the last run."""
        self._session.release()

    def _bind(self, cache: Cache, array: PlacedArray) -> None:
        self._placed[cache.past.name] = array
        self._session.read(cache.past.name, array)
        if cache.in_place:
            self._session.write(cache.present.name, array)

    def _room(
        self, cache: Cache, batch: int, tokens: int, local: tuple[int, ...] | None = None
    ) -> PlacedArray:
        """Return an array for this rank's part of a cache; reuse an old array of its shape."""
        if local is None:
            local = cache.past.layout.local_shape(cache.shape(batch, tokens, self._dims))
        old = self._placed.get(cache.past.name)
        if old is not None and old.shape == local:
            return old
        return self._provider.empty(local, dtype_of(cache.past.dtype))

    def _feed(self, name: str, part: Array) -> None:
        """Bind an input to a copy of ``part``; reuse the last array of the same shape and dtype."""
        placed = self._fed.get(name)
        if placed is None or (placed.shape, placed.dtype) != (part.shape, part.dtype):
            placed = self._fed[name] = self._provider.place(np.array(part))
            self._session.read(name, placed)
        else:
            placed.put(part)

    def _bind_scores(self, shape: tuple[int, ...]) -> None:
        """Bind the scores to a fixed array while steps take single tokens."""
        scores = self.decoder.scores
        if shape[1] != 1:
            self._row = None
            self._session.allocate(scores.name)
            return
        local = scores.layout.local_shape((*shape, self._vocabulary))
        if self._row is None or self._row.shape != local:
            self._row = self._provider.empty(local, dtype_of(scores.dtype))
            self._session.write(scores.name, self._row)
