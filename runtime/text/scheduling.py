"""The schedule of texts that ranks continue together: admission, and places in the batch.

Every rank has a schedule of its own. It depends only on the messages of the caller and on the
chosen tokens, which are the same on all ranks, so their schedules agree without a message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.text.isolation import isolated
from tensoropt.runtime.text.proposals import Proposals
from tensoropt.runtime.text.sampling import Likely, Sampler

__all__ = ["LEAST_PREFIX", "Choice", "Schedule", "Text"]

LEAST_PREFIX = 16
"""Fewest tokens that are copied from the caches of another text instead of read."""

Choice = tuple[int | None, Likely | None]
"""A chosen token, and the likeliest tokens if the text reports them.

Without a chosen token, the likeliest tokens are those in the place of the prompt's next token.
"""


@dataclass(eq=False)
class Text:
    """A text of a ``request``; ``key`` is its number for the caller.

    ``tokens`` are the ``prompt`` tokens of the prompt, then the chosen ones, at most ``room``
    together. Caches have the first ``read`` of them, ``copied`` ones from other texts. A chosen
    token of ``end`` ends the text, and so does an ``error``. ``proposals`` proposes next tokens.
    The grammar of the text is the one with the number ``grammar``, 0 without one.
    """

    key: int
    request: int
    tokens: list[int]
    prompt: int
    room: int
    end: Collection[int]
    sampler: Sampler
    read: int = 0
    copied: int = 0
    grammar: int = 0
    proposals: Proposals = field(default_factory=Proposals)
    error: UserError | None = None

    @property
    def left(self) -> int:
        """Number of tokens that are not in the caches."""
        return len(self.tokens) - self.read

    def choose(self, scores: Array) -> Choice:
        """Add and return the token that the sampler picks by the ``scores`` of all tokens.

        Also returns the likeliest tokens, if the text reports them.
        """
        token = self.sampler.pick(scores)
        self.tokens.append(token)
        return token, self.sampler.likely(scores, token)

    @property
    def is_scored(self) -> bool:
        """True if the next tokens to be read are of a prompt with wanted probabilities.

        All of these tokens have to be read: caches of other texts have no scores.
        """
        return self.sampler.scores_prompt and self.read < self.prompt

    def propose(self, most: int) -> list[int]:
        """Return at most ``most`` tokens that may follow and precede another one."""
        return self.proposals.propose(self.tokens, min(most, self.room - len(self.tokens) - 1))

    def fail(self, error: UserError) -> None:
        """Let the text end with an error."""
        self.error = error

    def go_on(self, count: int, proposed: Sequence[int], scores: Array) -> Iterator[Choice]:
        """Note that ``count`` tokens were read, and yield what `choose` returns after them.

        An error in between ends the text, see `fail`.

        ``scores`` are those after the last of them, and after each ``proposed`` token. They are
        valid up to the first proposed token that is not chosen. If the text `is_scored`, they are
        those after every token, and the tokens of the prompt come first.
        """
        with isolated(self.fail):
            yield from self._go_on(count, proposed, scores)

    def _go_on(self, count: int, proposed: Sequence[int], scores: Array) -> Iterator[Choice]:
        known = self.tokens[self.read + 1 : self.read + 1 + count] if self.is_scored else []
        for given, own in zip(known, scores, strict=False):
            yield None, self.sampler.likely_in_prompt(own, given)
        self.read += count
        if self.left:
            return
        for after, proposal in zip(scores[len(known) :], (*proposed, None), strict=True):
            token, likely = self.choose(after)
            yield token, likely
            if token != proposal or self.has_ended:
                return
            self.read += 1

    @property
    def has_ended(self) -> bool:
        """True if tokens were chosen, and none may follow, or the text has failed."""
        is_full = len(self.tokens) >= self.room
        is_last = self.tokens[-1] in self.end
        return self.error is not None or (len(self.tokens) > self.prompt and (is_full or is_last))


class Schedule:
    """Texts that wait for a slot, the text ``reading`` its prompt, and the batch ``rows``.

    At most ``slots`` texts are admitted. The next text to be admitted is of the request with the
    fewest admitted texts: a request of many texts does not delay the others. Among them it is the
    oldest, or in every second turn the one with the shortest prompt. So a short prompt does not
    wait for many long ones, and a text with n older ones waits for 2n + 1 texts at most.

    A text waits until its grammar is one of the first `compiled` ones.

    If it ``keeps`` caches, texts that have ended or were dropped stay in `kept`, in the order in
    which they leave, the oldest first. Together with the batch they take ``slots`` at most.
    """

    def __init__(self, slots: int, *, keeps: bool = False) -> None:
        self._slots, self._keeps = slots, keeps
        self._waiting: list[Text] = []
        self._is_turn_of_shortest = False
        self.compiled = 0
        self.reading: Text | None = None
        self.rows: list[Text] = []
        self.kept: list[Text] = []

    @property
    def is_empty(self) -> bool:
        """True if no text waits or is admitted."""
        return not (self._waiting or self._admitted)

    @property
    def awaits_grammars(self) -> bool:
        """True if all texts wait until their grammars are compiled."""
        waits = all(text.grammar > self.compiled for text in self._waiting)
        return bool(self._waiting) and waits and not self._admitted

    @property
    def _admitted(self) -> list[Text]:
        return self.rows if self.reading is None else [*self.rows, self.reading]

    @property
    def with_caches(self) -> list[Text]:
        """The texts of the batch, and those that are kept."""
        return [*self.rows, *self.kept]

    def add(self, text: Text) -> None:
        """Let a text wait for a slot."""
        self._waiting.append(text)

    def drop(self, keys: Collection[int]) -> None:
        """Remove the texts with these keys; they may be kept."""
        gone = [text for text in self._admitted if text.key in keys]
        self._waiting = [text for text in self._waiting if text.key not in keys]
        self.rows = [text for text in self.rows if text.key not in keys]
        if self.reading in gone:
            self.reading = None
        for text in gone:
            self._keep(text)

    def admit(self, may_join: Callable[[Text], bool] = lambda _: True) -> Text | None:
        """Give a free slot to the next text, which then reads its prompt; None if there is none.

        No other text may be reading. Only a text that ``may_join`` is admitted.
        """
        assert self.reading is None
        ready = [text for text in self._waiting if text.grammar <= self.compiled]
        if not ready or len(self.rows) >= self._slots:
            return None
        running = Counter(text.request for text in self.rows)
        oldest = min(ready, key=lambda text: running[text.request])
        shortest = min(ready, key=lambda text: (running[text.request], text.left))
        for text in (shortest, oldest) if self._is_turn_of_shortest else (oldest, shortest):
            if may_join(text):
                self._is_turn_of_shortest = text is oldest
                self._waiting.remove(text)
                self.reading = text
                return text
        return None

    def find_prefix(self, text: Text) -> tuple[Text, int] | None:
        """Return the running or kept text that shares the most first tokens, and their number.

        Only tokens in its caches count, and the last token of ``text`` does not. None if no text
        has caches, or ``text`` has to read all tokens.
        """
        if text.is_scored:
            return None
        found = [(other, _shared(text.tokens[:-1], other)) for other in self.with_caches]
        return max(found, key=lambda pair: pair[1], default=None)

    def is_prefix_unread(self, text: Text, least: int) -> bool:
        """Return True if a prompt of the batch shares first tokens that are still to be read.

        They are more than those of `find_prefix`, and ``least`` at least.
        """
        prompts = [row for row in self.rows if row.left > 1]
        if text.is_scored or not prompts:
            return False
        found = self.find_prefix(text)
        count = max(least, 1 + (0 if found is None else found[1]))
        begun = text.tokens[:count]
        unread = (row for row in prompts if row.read < count <= row.read + row.left - 1)
        return count < len(text.tokens) and any(row.tokens[:count] == begun for row in unread)

    def note_copy(self, text: Text, count: int) -> None:
        """Let a kept text leave first if ``count``, at least half of its tokens, were copied.

        Only the other tokens would be lost, because the text with the copies is newer.
        """
        if text in self.kept and 2 * count >= text.read:
            self.kept.remove(text)
            self.kept.insert(0, text)

    def join(self) -> None:
        """Move the text that has read its prompt into the batch, unless it has ended."""
        assert self.reading is not None
        text, self.reading = self.reading, None
        if text.has_ended:
            self._keep(text)
            return
        self.rows.append(text)
        self._limit_kept(text)

    def _keep(self, text: Text) -> None:
        """Keep a text, unless its tokens are few, or in the caches of another text too.

        The caches of a text that failed may have numbers that are not finite.
        """
        if not self._keeps or text.read < LEAST_PREFIX or text.error is not None:
            return
        if not any(_begins(text, other) for other in self.with_caches):
            self.kept.append(text)
            self._limit_kept(text)

    def _limit_kept(self, new: Text) -> None:
        """Forget kept texts that the ``new`` one begins with, then the first without a slot."""
        kept = [own for own in self.kept if own is new or not _begins(own, new)]
        self.kept = kept[max(0, len(kept) + len(self.rows) - self._slots) :]


def _begins(text: Text, other: Text) -> bool:
    """Return True if the caches of another text have all read tokens of ``text``."""
    read = text.read
    return read <= other.read and text.tokens[:read] == other.tokens[:read]


def _shared(tokens: Sequence[int], other: Text) -> int:
    """Return the number of first tokens that are also in the caches of another text."""
    most = min(len(tokens), other.read)
    return next((n for n in range(most) if tokens[n] != other.tokens[n]), most)
