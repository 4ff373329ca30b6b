"""The program "text": a decoder that goes on by itself, its caches on the ranks between steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np

from tensoropt.runtime.device.provider import PlacedArray
from tensoropt.runtime.pool.programs import Rank, Reply, Request
from tensoropt.runtime.session.opening import opened_session
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.messages import Message
from tensoropt.runtime.text.batch import Batch, Fed
from tensoropt.runtime.text.decoder import IDS, Cache, decoder_of
from tensoropt.runtime.text.sampling import Sampler, Sampling
from tensoropt.runtime.text.scores import SharedScores

__all__ = ["Text", "open_program"]


def open_program(rank: Rank) -> Text:
    """Return the program of one rank, its session made. Raises `UserError`."""
    return Text(rank)


class Text:
    """Continues sequences on a rank: all ranks choose the same tokens, of the same scores.

    The message of the first request for new sequences has ``prompts``, their tokens; ``tokens``,
    how many more there are to be at most; ``end``, tokens that end a sequence; and for the
    sequences with these ``numbers`` the fields of a ``sampling``. Each request goes on for some
    ``steps`` at most, and tells of each the ``tokens`` that were chosen: none yet while a prompt is
    read. It has an array ``stop`` of one number: if the caller sets it, no more steps are taken.
    """

    def __init__(self, rank: Rank) -> None:
        session, _, error = opened_session(rank.job, rank.plan, rank.comm, rank.provider)
        if session is None:
            raise UserError(error or "")
        self._session, self._provider, self._comm = session, rank.provider, rank.comm
        self._dims: Mapping[str, int] = rank.job.options.get("dims", {})
        self._decoder = decoder_of(rank.plan, self._dims)
        self._moved = {c.present.name: c.past.name for c in self._decoder.caches if not c.in_place}
        self._placed: dict[str, PlacedArray] = {}
        self._fed: dict[str, PlacedArray] = {}
        self._scores: SharedScores | None = None
        self._row: PlacedArray | None = None  # of scores, where the session writes just one
        self._stop: Array = np.zeros(1, np.int64)
        self._tokens: Iterator[list[int]] = iter(())
        self._vocabulary = int(self._decoder.scores.shape[2])

    def answer(self, request: Request) -> Reply:
        """Go on for some steps."""
        self._stop = request.arrays["stop"]
        if "prompts" in request.message:
            self._tokens = self._continued(request.message)
        for tokens in islice(self._tokens, request.message["steps"]):
            request.tell({"tokens": tokens})
        return Reply()

    def _continued(self, asked: Message) -> Iterator[list[int]]:
        """Yield the tokens of each step, one of each sequence, or none while prompts are read."""
        batch = Batch(self._decoder, asked["prompts"], asked["tokens"])
        count, end = len(asked["prompts"]), {*asked["end"]}
        sampler = Sampler(Sampling(**asked["sampling"]), asked["numbers"])
        self._begin(batch)
        for fed in batch.prompts():
            scores = self._step(fed)
            yield []
        has_ended = np.zeros(count, bool)
        for left in reversed(range(asked["tokens"])):
            if scores is None:
                return
            tokens = sampler.pick(scores[:count, 0])
            yield tokens
            has_ended |= [token in end for token in tokens]
            if not left or has_ended.all():
                return
            scores = self._step(batch.step(tokens))

    def _step(self, fed: Fed) -> Array | None:
        """Run once; returns scores of the last token, or None where the caller wants no more."""
        for name, array in fed.items():
            self._feed(name, self._decoder.inputs[name].layout.part_of(array, self._comm.rank))
        self._bind_scores(fed[IDS].shape)
        self._session.run()
        self._session.pass_on(self._moved)
        return self._joined(len(fed[IDS]))

    def _feed(self, name: str, part: Array) -> None:
        """Let the session read a part of its own, in the place of the last one if that is alike."""
        placed = self._fed.get(name)
        if placed is None or (placed.shape, placed.dtype) != (part.shape, part.dtype):
            placed = self._fed[name] = self._provider.place(np.array(part))
            self._session.read(name, placed)
        else:
            placed.put(part)

    def _bind_scores(self, shape: tuple[int, ...]) -> None:
        """Have scores written to one place while steps take single tokens."""
        scores = self._decoder.scores
        if shape[1] != 1:
            self._row = None
            self._session.allocate(scores.name)
            return
        local = scores.layout.local_shape((*shape, self._vocabulary))
        if self._row is None or self._row.shape != local:
            self._row = self._provider.empty(local, dtype_of(scores.dtype))
            self._session.write(scores.name, self._row)

    def _joined(self, batch: int) -> Array | None:
        """Return the scores of each sequence's last token, as all ranks have them."""
        scores, shape = self._decoder.scores, (batch, 1, self._vocabulary)
        if self._scores is None or self._scores.shape != shape:
            self._scores = SharedScores(self._comm, scores.layout, shape, dtype_of(scores.dtype))
        part = self._last_scores() if self._scores.has_part else None
        return self._scores.joined(part, stop=bool(self._stop[0]))

    def _last_scores(self) -> Array:
        if self._row is not None:
            return self._row.get()
        ((_, scores),) = self._session.results([self._decoder.scores.name])
        return scores[:, -1:]

    def _begin(self, batch: Batch) -> None:
        """Empty the caches; those that are written in place have room for all tokens."""
        for cache in self._decoder.caches:
            self._session.read(cache.past.name, self._empty(cache, batch))
            if cache.in_place:
                self._session.write(cache.present.name, self._placed[cache.past.name])

    def _empty(self, cache: Cache, batch: Batch) -> PlacedArray:
        shape = cache.shape(batch.count, batch.room if cache.in_place else 0, self._dims)
        local, name = cache.past.layout.local_shape(shape), cache.past.name
        old = self._placed.get(name)
        if old is None or old.shape != local:
            self._placed[name] = self._provider.empty(local, dtype_of(cache.past.dtype))
        self._placed[name].zero()
        return self._placed[name]
