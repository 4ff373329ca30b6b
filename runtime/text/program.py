"""The program "text": steps of a decoder, whose caches stay on the rank from one to the next."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tensoropt.runtime.device.provider import PlacedArray
from tensoropt.runtime.pool.programs import Rank, Reply, Request
from tensoropt.runtime.session.opening import opened_session
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.text.decoder import IDS, Cache, decoder_of

__all__ = ["Text", "open_program"]


def open_program(rank: Rank) -> Text:
    """Return the program of one rank, its session made. Raises `UserError`."""
    return Text(rank)


class Text:
    """Runs a rank's decoder step by step.

    A request has the inputs beside the caches, whole, and room for the scores of the last token of
    each sequence, `[batch, 1, vocabulary]`. The message of the first step of new sequences has
    ``tokens``, how many there will be at most; that of others has nothing.
    """

    def __init__(self, rank: Rank) -> None:
        session, _, error = opened_session(rank.job, rank.plan, rank.comm, rank.provider)
        if session is None:
            raise UserError(error or "")
        self._session, self._provider, self._rank = session, rank.provider, rank.comm.rank
        self._dims: Mapping[str, int] = rank.job.options.get("dims", {})
        self._decoder = decoder_of(rank.plan, self._dims)
        self._moved = {c.present.name: c.past.name for c in self._decoder.caches if not c.in_place}
        self._placed: dict[str, PlacedArray] = {}

    def answer(self, request: Request) -> Reply:
        """Take one step."""
        for name, array in request.arrays.items():
            part = self._decoder.inputs[name].layout.part_of(array, self._rank)
            self._session.feed(name, np.array(part))  # the request's memory is not kept
        if "tokens" in request.message:
            self._begin(len(request.arrays[IDS]), request.message["tokens"])
        else:
            self._session.pass_on(self._moved)
        self._session.run()
        for name, room in request.room.items():
            self._give(name, room)
        return Reply()

    def _begin(self, batch: int, tokens: int) -> None:
        """Empty the caches; those that are written in place have room for all ``tokens``."""
        for cache in self._decoder.caches:
            self._session.read(cache.past.name, self._empty(cache, batch, tokens))
            if cache.in_place:
                self._session.write(cache.present.name, self._placed[cache.past.name])

    def _empty(self, cache: Cache, batch: int, tokens: int) -> PlacedArray:
        shape = cache.shape(batch, tokens if cache.in_place else 0, self._dims)
        local, name = cache.past.layout.local_shape(shape), cache.past.name
        old = self._placed.get(name)
        if old is None or old.shape != local:
            self._placed[name] = self._provider.empty(local, dtype_of(cache.past.dtype))
        self._placed[name].zero()
        return self._placed[name]

    def _give(self, name: str, room: Array) -> None:
        """Write the rank's part of the last token's scores."""
        layout = self._decoder.scores.layout
        if self._rank in layout.sources():
            ((_, scores),) = self._session.results([name])
            layout.part_of(room, self._rank)[...] = scores[:, -1:]
