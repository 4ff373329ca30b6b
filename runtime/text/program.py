"""The rank program "text": texts that run together, with caches that stay on the ranks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.pool.job import REPLACED
from tensoropt.runtime.pool.programs import Rank, Reply, Request
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.messages import Message
from tensoropt.runtime.text.compiling import Compiler
from tensoropt.runtime.text.decoder import Padding
from tensoropt.runtime.text.feeding import (
    Part,
    feed,
    feed_packed,
    longest_part,
    share_prompts,
    share_step,
)
from tensoropt.runtime.text.grammar import Grammars
from tensoropt.runtime.text.isolation import TextFailedError, isolated
from tensoropt.runtime.text.restricting import AtLeast
from tensoropt.runtime.text.rows import Rows
from tensoropt.runtime.text.sampling import Likely, Sampler, Sampling
from tensoropt.runtime.text.scheduling import LEAST_PREFIX, Choice, Schedule, Text
from tensoropt.runtime.text.shared_memory import SharedScores, reshard
from tensoropt.runtime.text.steps import SCORES_DTYPE, Caches, Steps, open_steps

__all__ = ["REPORT_S", "Chosen", "Texts", "open_program"]

Chosen = tuple[int, int | None, Likely | None]
"""The key of a text, and a `Choice` for it; without any tokens, the text was admitted."""

Failure = tuple[int, str, bool]
"""The key of a text that ended with an error, the error, and False if it is no fault of it."""

REPORT_S = 0.005
"""Shortest interval between messages to the caller: waking it takes CPU time from a rank."""

_COMPILING_S = 0.01  # between two looks of ranks that wait for a grammar alone
_MOST_SCORED = 512  # tokens of prompts that a step scores
_MOST_SCORES_BYTES = 64 << 20  # their scores


def open_program(rank: Rank) -> Texts:
    """Return the program of one rank, with its sessions opened. Raises `UserError`."""
    return Texts(rank)


class Texts:
    """Continues texts on a rank; all ranks choose the same tokens, from the same scores.

    A request has the texts to ``drop``, by their keys, and the texts to ``add``: each has a
    ``key``, the number of its ``request``, the tokens of its ``prompt``, the most tokens of prompt
    and continuation (``room``), the tokens that ``end`` it, but none of its
    ``least`` first ones, its ``number`` in the request,
    ``sampling``, the fields of a `Sampling`, and its ``grammar``, or None.

    Ranks take steps until all texts have ended, or the caller sets the only element of the array
    ``stop``. They keep the texts that have not ended, and caches of others. Messages have the
    ``chosen`` tokens, each with the key of its text and the likeliest tokens, at most one message
    per `REPORT_S`; the answer has the rest. A key alone reports that the text was admitted, and
    likeliest tokens without a chosen one are in the place of the prompt's next token. ``copied``
    has the keys of texts that begin with tokens of other texts, and the number of these tokens.
    ``failed`` has the keys of texts that ended with an error, the error, and False if it is no
    fault of the request. Messages also count ``proposed`` and ``accepted`` tokens.

    Options: at most ``slots`` texts are continued together, and in a step of the batch, or between
    two, at most ``step_tokens`` tokens of prompts are read, or the fewest that the plan can read.
    None sets no limit. Of prompts with wanted probabilities a step reads fewer tokens, because
    their scores take memory. Of the tokens that may follow a text, up to ``speculate`` are proposed
    and verified in one step. ``prefill`` is the folder of another plan that reads the prompts.
    ``tokenizer`` is the file that grammars need; if the rank ``reads_tokenizer`` it does so at its
    start, and not for the first grammar, because other texts would wait for it.

    Each rank compiles the grammars of texts in a thread. A text waits until all ranks have compiled
    its grammar: next to the scores of each step, ranks exchange the number of compiled ones.
    """

    def __init__(self, rank: Rank) -> None:
        options = rank.job.options
        prefill = options.get("prefill")
        self._comm = rank.comm
        packs = prefill is None and options["slots"] > 1
        self._steps = self._reading = open_steps(rank, rank.plan, packs=packs)
        if prefill is not None:
            reader = Plan.read(prefill)
            reader.check_unchanged(options["prefill_sha256"], REPLACED)
            self._reading = open_steps(rank, reader, other=rank.plan)
        decoder = self._steps.decoder
        size, end = int(decoder.scores.shape[2]), decoder.entry["end"]
        grammars = Grammars(Path(options["tokenizer"] or ""), size, end)
        if options["reads_tokenizer"]:
            with suppress(UserError):  # each grammar repeats it
                grammars.load()
        self._compiler = Compiler(grammars)
        self._slots = self._steps.decoder.slots(options["slots"])
        self._step_tokens: int | None = options["step_tokens"]
        self._speculate: int = options["speculate"]
        row_bytes = int(decoder.scores.shape[2]) * SCORES_DTYPE.itemsize
        self._most_scored = min(_MOST_SCORED, max(1, _MOST_SCORES_BYTES // row_bytes))
        self._scores: SharedScores | None = None
        self._is_stopped = False
        self._forget()

    def answer(self, request: Request) -> Reply:
        """Continue texts. An error that is not of one text alone ends all of them."""
        try:
            return self._answer(request)
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        """Drop all texts, and free all caches."""
        self._compiler.drop_all()
        self._rows = Rows(self._steps, self._slots)
        # A prefill plan has caches of its own.
        self._copies = self._reading is self._steps and self._steps.decoder.rows(1) == 1
        self._schedule = Schedule(self._slots, keeps=self._copies and self._rows.keeps)
        self._prompt: tuple[Steps, Caches] | None = None
        self._is_turn_of_batch = False

    def _answer(self, request: Request) -> Reply:
        self._failed: list[Failure] = []
        self._change(request)
        self._flag, self._is_stopped = request.arrays["stop"], False
        self._pending: list[Chosen] = []
        self._reported_at = 0.0
        self._proposed = self._accepted = 0
        self._copied: list[tuple[int, int]] = []
        while not (self._schedule.is_empty or self._is_stopped):
            if self._schedule.awaits_grammars:
                self._wait_for_grammars()
            elif self._steps.packs:
                self._pending += self._admit()
            elif not self._is_turn_of_batch:
                self._is_turn_of_batch = True  # also if the caller stops ranks before it
                self._pending += self._read_prompts()
                self._tell(request)  # a first token does not wait for the step of the batch
            if not self._is_stopped:
                self._pending += self._continue_batch()
                self._is_turn_of_batch = False
            self._tell(request)
        if self._schedule.is_empty:
            if self._schedule.kept:
                self._arrange()
            else:
                self._rows.clear()
            self._steps.release()
        return Reply(self._report())

    def _tell(self, request: Request) -> None:
        """Send the chosen tokens to the caller, unless the last message was too recent."""
        if time.monotonic() >= self._reported_at + REPORT_S:
            request.tell(self._report())
            self._reported_at = time.monotonic()

    def _report(self) -> Message:
        """Return a message of the tokens that were chosen, copied and proposed since the last."""
        chosen, self._pending = self._pending, []
        proposed, self._proposed = self._proposed, 0
        accepted, self._accepted = self._accepted, 0
        copied, self._copied = self._copied, []
        failed, self._failed = self._failed, []
        counts = {"proposed": proposed, "accepted": accepted}
        return {"chosen": chosen, "copied": copied, "failed": failed, **counts}

    def _note_failure(self, key: int, error: UserError) -> None:
        _add_failure(self._failed, key, error)

    def _change(self, request: Request) -> None:
        """Drop and add the texts that a request names."""
        reading = self._schedule.reading
        self._schedule.drop({*request.message["drop"]})
        self._compiler.drop(request.message["drop"])
        if reading is not None and self._schedule.reading is None:
            self._hand_in(reading)
        self._rows.forget_others(self._schedule.with_caches)
        for new in request.message["add"]:
            with isolated(partial(self._note_failure, new["key"])):
                self._schedule.add(self._new_text(new))

    def _note_compiled(self, *, stop: bool, number: int) -> None:
        """Note the agreement of a step; a collective if more grammars are compiled than before.

        A grammar may fail on one rank alone, which cannot read the tokenizer. All ranks drop its
        text. An error that is of no text ends this rank.
        """
        self._is_stopped = stop
        if number <= self._schedule.compiled:
            return
        self._schedule.compiled = number
        failures: list[Failure] = []
        for key, error in self._compiler.take_failures(number):
            with isolated(partial(_add_failure, failures, key)):
                raise error
        agreed = {text[0]: text for rank in self._comm.allgather(failures) for text in rank}
        self._failed += agreed.values()
        self._schedule.drop({*agreed})

    def _new_text(self, new: Message) -> Text:
        prompt, source = new["prompt"], new["grammar"]
        grammar = None if source is None else self._compiler.add(new["key"], source)
        least = AtLeast(new["least"], new["end"]) if new["least"] else None
        sampler = Sampler(Sampling(**new["sampling"]), new["number"], prompt, grammar or least)
        return Text(
            new["key"],
            new["request"],
            prompt,
            len(prompt),
            new["room"],
            {*new["end"]},
            sampler,
            grammar=0 if grammar is None else grammar.number,
        )

    def _go_on(self, part: Part, scores: Array) -> list[Choice]:
        """Return the choices of a text after a part of it was read, and note its failure."""
        chosen = [*part.text.go_on(part.count, part.proposed, scores)]
        if part.text.error is not None:
            self._note_failure(part.text.key, part.text.error)
        return chosen

    def _wait_for_grammars(self) -> None:
        """Wait for the next grammar, and agree with the other ranks which are compiled."""
        self._compiler.wait(_COMPILING_S)
        stop, scores = bool(self._flag[0]), self._shared_scores(1)
        is_stopped, number = scores.agree(stop=stop, number=self._compiler.compiled)
        self._note_compiled(stop=is_stopped, number=number)

    def _admit(self) -> Iterator[Chosen]:
        """Move waiting texts into the batch, which reads their prompts, and yield them."""
        while (text := self._schedule.admit(self._may_join)) is not None:
            yield text.key, None, None
            self._copy_prefix(text)
            self._join(text)

    def _may_join(self, text: Text) -> bool:
        """Return True if a text may take a slot before it has read its prompt.

        Prompts that wait for their turn have half of the slots at most, so others are left for
        prompts that are read at once. A text that could copy a prompt waits until it is read.
        """
        prompts = [row.left for row in self._schedule.rows if row.left > 1]
        if len(prompts) >= max(1, self._slots // 2) and self._step_tokens is not None:
            most = max(1, self._step_tokens - len(self._schedule.rows) + len(prompts))
            if not share_prompts([*prompts, text.left], most)[-1]:
                return False
        return not self._schedule.is_prefix_unread(text, LEAST_PREFIX)

    def _read_prompts(self) -> Iterator[Chosen]:
        """Read prompts, up to the number of tokens that may delay the batch.

        Yields the admitted texts, and the first token of each text after its prompt.
        """
        left = self._step_tokens
        if left is not None:
            left = max(1, left - len(self._schedule.rows))
        while left is None or left > 0:
            text = self._schedule.reading
            if text is None:
                text = self._schedule.admit()
                if text is None:
                    return
                self._copy_prefix(text)
                yield text.key, None, None
            size, chosen = self._read_chunk(text, left)
            left = None if left is None else left - max(size, 1)
            for token, likely in chosen:
                yield text.key, token, likely
            if text.left == 1 or text.has_ended or not size:
                self._join(text)
            if self._is_stopped:
                return

    def _copy_prefix(self, text: Text) -> None:
        """Begin with the caches of the first tokens that a running or kept text has too.

        Several rows could not go on with many tokens.
        """
        found = self._schedule.find_prefix(text) if self._copies else None
        if found is not None and found[1] >= LEAST_PREFIX:
            other, text.copied = found
            text.read = text.copied
            self._schedule.note_copy(other, text.copied)
            self._prompt = self._steps, self._rows.copy(other, text.copied, text.room)
            self._copied.append((text.key, text.copied))

    def _read_chunk(self, text: Text, most: int | None) -> tuple[int, list[Choice]]:
        """Read a part of a prompt. Return its size, 0 if the batch must read the rest.

        Also returns the token that is chosen after the prompt, if this is its end.
        GroupQueryAttention continues several rows only by single tokens.
        """
        decoder = self._steps.decoder
        if text.read and decoder.padding is Padding.RIGHT and decoder.rows(1) > 1:
            return 0, []
        steps = self._reading
        if text.is_scored:
            most = self._most_scored if most is None else min(most, self._most_scored)
            if steps.decoder.scores.layout.pieces(1) > 1:  # of different tokens on each rank
                steps = self._steps
        size = steps.decoder.step_size(text.left, most)
        if not size:
            steps = self._steps
            size = 0 if decoder.length == 1 else decoder.step_size(text.left, most)
        if not size:
            return 0, []
        caches = self._caches_of(text, steps)
        part = Part(text, size)
        return size, self._go_on(part, self._take_step(steps, [part], caches)[0])

    def _caches_of(self, text: Text, steps: Steps) -> Caches:
        """Return the caches of the text that is read, for ``steps`` of either plan."""
        if self._prompt is None:
            self._prompt = steps, steps.begin(self._steps.decoder.rows(1), text.room)
        elif self._prompt[0] is not steps:
            self._prompt = steps, self._handed_over(self._prompt[1])
        return self._prompt[1]

    def _join(self, text: Text) -> None:
        """Move the text that has been read into the batch, with its caches."""
        self._schedule.join()
        self._hand_in(text)

    def _hand_in(self, text: Text) -> None:
        """Give the caches of the text that is no longer read to the rows, if they are needed."""
        if text in self._schedule.with_caches:
            self._rows.join(text, self._caches_of(text, self._steps))
            if self._rows.keeps and text.copied:  # to free them before the next text has a copy
                self._arrange()
        self._prompt = None

    def _handed_over(self, caches: Caches) -> Caches:
        """Return the caches of the prefill plan for the main plan, resharded if layouts differ."""
        read = {cache.past.name: cache for cache in self._reading.decoder.caches}
        found = Caches(caches.rows)
        for cache in self._steps.decoder.caches:
            name, layout = cache.past.name, cache.past.layout
            own = read[name].past.layout
            if own != layout:
                part = self._reading.part(read[name], caches).get()
                found.placed[name] = self._steps.provider.place(
                    reshard(self._comm, part, own, layout)
                )
            elif name in caches.made:
                found.made[name] = caches.made[name]
            else:
                found.placed[name] = caches.placed[name]
        self._reading.release()
        return found

    def _continue_batch(self) -> Iterator[Chosen]:
        """Take a step of the batch, and yield the chosen tokens.

        It reads the next token of each text. A graph that packs tokens also reads prompts.
        """
        texts = self._schedule.rows
        if not texts:
            return
        caches = self._arrange()
        if self._steps.packs:
            limits = self._speculate, self._step_tokens
            shared = {part.text: part for part in share_step(texts, *limits, self._most_scored)}
            parts = [shared[text] for text in self._rows.order]
        else:
            most = self._speculate if caches.rows == 1 else 0
            parts = [
                Part(text, 1, text.propose(most) if text.left == 1 else ())
                for text in self._rows.order
            ]
        scores = self._take_step(self._steps, parts, caches)
        for part, own in zip(parts, scores, strict=False):
            chosen = self._go_on(part, own)
            self._proposed += len(part.proposed)
            self._accepted += max(0, sum(token is not None for token, _ in chosen) - 1)
            for token, likely in chosen:
                yield part.text.key, token, likely
        if ended := {text.key for text in texts if text.has_ended}:
            self._schedule.drop(ended)

    def _arrange(self) -> Caches:
        """Return the caches of the batch. If texts share steps, padding needs room too."""
        texts, spare = self._schedule.rows, 0
        if self._steps.packs and texts:
            spare = longest_part(texts, self._speculate, self._step_tokens)
        return self._rows.arrange(texts, self._schedule.kept, spare)

    def _take_step(self, steps: Steps, parts: Sequence[Part], caches: Caches) -> list[Array]:
        """Read parts, of equal size unless tokens are packed.

        Return the scores of those tokens of each part that are asked for. All ranks get the same
        scores, and learn here if the caller wants a stop.
        """
        if steps.packs:
            ends = [*accumulate((part.asked for part in parts), initial=0)]
            count = max(1, ends[-1])
            steps.run(feed_packed(steps.decoder, parts), caches, count)
            (row,) = self._gather_scores(steps, (1, count), is_asked=ends[-1] > 0)
            return [row[start:end] for start, end in pairwise(ends)]
        asked = max(part.asked for part in parts)
        steps.run(feed(steps.decoder, parts, caches.rows), caches, max(asked, 1))
        return [*self._gather_scores(steps, (caches.rows, max(asked, 1)), is_asked=asked > 0)]

    def _gather_scores(self, steps: Steps, shape: tuple[int, int], *, is_asked: bool) -> Array:
        rows, asked = shape
        scores = self._shared_scores(rows * asked)
        where = steps.place_of_scores(rows, asked)
        give = steps.give_scores if is_asked and steps.has_last else None
        stop, number = bool(self._flag[0]), self._compiler.compiled
        whole, is_stopped, number = scores.gather(give, where, shape, stop=stop, number=number)
        self._note_compiled(stop=is_stopped, number=number)
        return whole

    def _shared_scores(self, count: int) -> SharedScores:
        """Return the memory for scores of ``count`` tokens; a collective if it has to grow."""
        if self._scores is None or self._scores.most < count:
            decoder = self._steps.decoder
            most = max(decoder.rows(size) for size in (1, self._slots)) * (1 + self._speculate)
            width = int(decoder.scores.shape[2])
            self._scores = SharedScores(self._comm, max(most, count), width, SCORES_DTYPE)
        return self._scores


def _add_failure(failures: list[Failure], key: int, error: UserError) -> None:
    failures.append((key, str(error), not isinstance(error, TextFailedError)))
