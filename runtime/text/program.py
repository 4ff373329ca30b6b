"""The program "text": a decoder that goes on by itself, its caches on the ranks between steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice

import numpy as np

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.pool.job import REPLACED
from tensoropt.runtime.pool.programs import Rank, Reply, Request
from tensoropt.runtime.session.opening import opened_session
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.messages import Message
from tensoropt.runtime.text.batch import Batch
from tensoropt.runtime.text.decoder import Decoder, decoder_of
from tensoropt.runtime.text.sampling import Sampler, Sampling
from tensoropt.runtime.text.shared import SharedScores, moved
from tensoropt.runtime.text.steps import Steps

__all__ = ["TOLD_S", "Text", "open_program"]

TOLD_S = 0.005
"""How soon the caller is told again: waking it takes a rank's core from it for a while."""


def open_program(rank: Rank) -> Text:
    """Return the program of one rank, its sessions made. Raises `UserError`."""
    return Text(rank)


class Text:
    """Continues sequences on a rank: all ranks choose the same tokens, of the same scores.

    The message of the first request for new sequences has ``prompts``, their tokens; ``tokens``,
    how many more there are to be at most; ``end``, tokens that end a sequence; ``step_tokens``, how
    many tokens of prompts a step reads at most; and for the sequences with these ``numbers`` the
    fields of a ``sampling``. Each request goes on for some
    ``steps`` at most, and tells the ``tokens`` that were chosen, by step: those of steps that are
    faster than `TOLD_S` together. What is untold then is in the answer. It has an array ``stop`` of
    one number: if the caller sets it, no more steps are taken.

    The option ``prefill`` is the folder of another plan that reads the prompts.
    """

    def __init__(self, rank: Rank) -> None:
        prefill = rank.job.options.get("prefill")
        self._comm = rank.comm
        self._steps = self._reading = _steps(rank, rank.plan)
        if prefill is not None:
            reader = Plan.read(prefill)
            reader.check_unchanged(rank.job.options["prefill_sha256"], REPLACED)
            self._reading = _steps(rank, reader, beside=rank.plan)
        self._scores: SharedScores | None = None
        self._stop: Array = np.zeros(1, np.int64)
        self._told_at = 0.0
        self._tokens: Iterator[list[int]] = iter(())

    def answer(self, request: Request) -> Reply:
        """Go on for some steps."""
        self._stop = request.arrays["stop"]
        if "prompts" in request.message:
            self._tokens = self._continued(request.message)
        untold: list[list[int]] = []
        for tokens in islice(self._tokens, request.message["steps"]):
            untold += [tokens] if tokens else []
            if time.monotonic() >= self._told_at + TOLD_S:
                request.tell({"tokens": untold})
                self._told_at, untold = time.monotonic(), []
        return Reply({"tokens": untold})

    def _continued(self, asked: Message) -> Iterator[list[int]]:
        """Yield the tokens of each step, one of each sequence, or none while prompts are read."""
        batch = Batch(
            asked["prompts"],
            asked["tokens"],
            self._steps.decoder,
            self._reading.decoder,
            asked["step_tokens"],
        )
        count, end = len(asked["prompts"]), {*asked["end"]}
        sampler = Sampler(Sampling(**asked["sampling"]), asked["numbers"])
        steps: Steps | None = None
        scores: Array | None = None
        for decoder, fed in batch.prompts():
            steps = self._next(steps, decoder, batch)
            steps.run(fed)
            scores = self._joined(steps, batch)
            if scores is None:
                return
            yield []
        assert scores is not None  # no prompt is empty
        self._next(steps, self._steps.decoder, batch)
        has_ended = np.zeros(count, bool)
        for left in reversed(range(asked["tokens"])):
            tokens = sampler.pick(scores[:count, 0])
            yield tokens
            has_ended |= [token in end for token in tokens]
            if not left or has_ended.all():
                return
            self._steps.run(batch.step(tokens))
            scores = self._joined(self._steps, batch)
            if scores is None:
                return

    def _next(self, last: Steps | None, decoder: Decoder, batch: Batch) -> Steps:
        """Return the steps of a plan, ready to go on where the ``last`` ones were."""
        steps = self._steps if decoder is self._steps.decoder else self._reading
        if last is None:
            steps.begin(batch)
        elif last is not steps:
            self._hand_over()
        return steps

    def _hand_over(self) -> None:
        """Give the caches to the plan that goes on, moved between ranks where it wants them so."""
        read = {cache.past.name: cache for cache in self._reading.decoder.caches}
        own = self._steps.decoder.caches
        alike = [cache for cache in own if read[cache.past.name].past.layout == cache.past.layout]
        self._steps.take_over(alike, self._reading)
        for cache in own:
            if cache not in alike:
                layout, part = self._reading.cache(read[cache.past.name])
                self._steps.put(cache, moved(self._comm, part, layout, cache.past.layout))
        self._reading.let_go()

    def _joined(self, steps: Steps, batch: Batch) -> Array | None:
        """Return the last token's scores, as all ranks have them, None where nobody wants more."""
        scores, rank = steps.decoder.scores, self._comm.rank
        shape = batch.count, 1, int(scores.shape[2])
        if self._scores is None or self._scores.shape != shape:
            self._scores = SharedScores(self._comm, shape, dtype_of(scores.dtype))
        parts = scores.layout.parts(1)  # of the tokens of a prompt: the last one is of the last
        has_last = scores.layout.part(1, rank) == parts - 1
        part = steps.scores() if has_last and rank in scores.layout.sources() else None
        rows, _, columns = scores.layout.bounds((batch.count, parts, shape[2]), rank)
        if part is not None:
            part = part[..., : columns.stop - columns.start]  # without padding
        return self._scores.joined(part, (rows, columns), stop=bool(self._stop[0]))


def _steps(rank: Rank, plan: Plan, beside: Plan | None = None) -> Steps:
    dims = rank.job.options.get("dims", {})
    session, _, error = opened_session(rank.job, plan, rank.comm, rank.provider, beside)
    if session is None:
        raise UserError(error or "")
    return Steps(session, decoder_of(plan, dims), rank.provider, rank.comm.rank, dims)
