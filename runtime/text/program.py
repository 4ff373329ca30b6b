"""The rank program "text": a decoder loop with caches that stay on the ranks between steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice

import numpy as np

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.pool.job import REPLACED
from tensoropt.runtime.pool.programs import Rank, Reply, Request
from tensoropt.runtime.session.opening import open_session
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.messages import Message
from tensoropt.runtime.text.batch import Batch
from tensoropt.runtime.text.decoder import Decoder, decoder_of
from tensoropt.runtime.text.sampling import Sampler, Sampling
from tensoropt.runtime.text.shared_memory import SharedScores, reshard
from tensoropt.runtime.text.steps import Steps

__all__ = ["REPORT_S", "Text", "open_program"]

REPORT_S = 0.005
"""Shortest interval between messages to the caller: waking it takes CPU time from a rank."""


def open_program(rank: Rank) -> Text:
    """Return the program of one rank, with its sessions opened. Raises `UserError`."""
    return Text(rank)


class Text:
    """Continues sequences on a rank; all ranks choose the same tokens, from the same scores.

    The message of the first request for new sequences has ``prompts``, their tokens; ``tokens``,
    the most new tokens; ``end``, the tokens that end a sequence; ``step_tokens``, the most prompt
    tokens that a step reads; ``numbers``, the sequences' numbers; and ``sampling``, the fields of a
    `Sampling`.

    Each request takes at most ``steps`` steps. Messages have the chosen ``tokens`` by step, at most
    one message per `REPORT_S`; the answer has the rest. A request has an array ``stop`` of one
    element: once the caller sets it, no further step is taken.

    The option ``prefill`` is the folder of another plan that reads the prompts.
    """

    def __init__(self, rank: Rank) -> None:
        prefill = rank.job.options.get("prefill")
        self._comm = rank.comm
        self._steps = self._reading = _steps(rank, rank.plan)
        if prefill is not None:
            reader = Plan.read(prefill)
            reader.check_unchanged(rank.job.options["prefill_sha256"], REPLACED)
            self._reading = _steps(rank, reader, other=rank.plan)
        self._scores: SharedScores | None = None
        self._stop: Array = np.zeros(1, np.int64)
        self._reported_at = 0.0
        self._tokens: Iterator[list[int]] = iter(())

    def answer(self, request: Request) -> Reply:
        """Take the requested number of steps."""
        self._stop = request.arrays["stop"]
        if "prompts" in request.message:
            self._tokens = self._generate(request.message)
        pending: list[list[int]] = []
        for tokens in islice(self._tokens, request.message["steps"]):
            pending += [tokens] if tokens else []
            if time.monotonic() >= self._reported_at + REPORT_S:
                request.tell({"tokens": pending})
                self._reported_at, pending = time.monotonic(), []
        return Reply({"tokens": pending})

    def _generate(self, asked: Message) -> Iterator[list[int]]:
        """Yield the tokens of each step, one per sequence, or none while prompts are read."""
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
            scores = self._gather_scores(steps, batch)
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
            scores = self._gather_scores(self._steps, batch)
            if scores is None:
                return

    def _next(self, last: Steps | None, decoder: Decoder, batch: Batch) -> Steps:
        """Return the steps of a plan, with the caches of the ``last`` steps."""
        steps = self._steps if decoder is self._steps.decoder else self._reading
        if last is None:
            steps.begin(batch)
        elif last is not steps:
            self._hand_over()
        return steps

    def _hand_over(self) -> None:
        """Pass the caches of the prefill plan to the main plan, resharded if layouts differ."""
        read = {cache.past.name: cache for cache in self._reading.decoder.caches}
        caches = self._steps.decoder.caches
        same = [c for c in caches if read[c.past.name].past.layout == c.past.layout]
        self._steps.take_over(same, self._reading)
        for cache in caches:
            if cache not in same:
                layout, part = self._reading.cache(read[cache.past.name])
                self._steps.put(cache, reshard(self._comm, part, layout, cache.past.layout))
        self._reading.release()

    def _gather_scores(self, steps: Steps, batch: Batch) -> Array | None:
        """Return the last token's scores, whole on all ranks, or None if the caller stopped."""
        scores, rank = steps.decoder.scores, self._comm.rank
        shape = batch.count, 1, int(scores.shape[2])
        if self._scores is None or self._scores.shape != shape:
            self._scores = SharedScores(self._comm, shape, dtype_of(scores.dtype))
        parts = scores.layout.pieces(1)  # of the prompt's tokens: the last part has the last token
        has_last = scores.layout.position(1, rank) == parts - 1
        part = steps.scores() if has_last and rank in scores.layout.sources() else None
        rows, _, columns = scores.layout.bounds((batch.count, parts, shape[2]), rank)
        if part is not None:
            part = part[..., : columns.stop - columns.start]  # without padding
        return self._scores.gather(part, (rows, columns), stop=bool(self._stop[0]))


def _steps(rank: Rank, plan: Plan, other: Plan | None = None) -> Steps:
    dims = rank.job.dims
    session, _, error = open_session(rank.job, plan, rank.comm, rank.provider, other)
    if session is None:
        raise UserError(error or "")
    return Steps(session, decoder_of(plan, dims), rank.provider, rank.comm.rank, dims)
