"""Choice of the next token: greedy or sampled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

import numpy as np
import numpy.typing as npt

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.text.adjusting import Adjustment

__all__ = [
    "MOST_LIKELY",
    "NO_TOKEN",
    "Constraint",
    "Likely",
    "Sampler",
    "Sampling",
    "SamplingArguments",
]

Floats = npt.NDArray[np.floating[Any]]
Tokens = npt.NDArray[np.intp]

Likely = Sequence[tuple[int, float]]
"""Tokens and the logarithms of their probabilities: the chosen token, then the likeliest ones."""

NO_TOKEN = -1
"""The choice if a constraint allows no token; it ends the text."""

MOST_LIKELY = 20
"""Most likeliest tokens that are reported with a token, as in OpenAI's API."""

_FIRST = 256  # likeliest tokens that are sorted at first
_LEAST = -9999.0  # reported for a probability of 0, as OpenAI does: JSON has no infinity
_PENALTY = 2.0
_BLOCK = 256  # tokens, of a vocabulary that is searched for the likeliest


class SamplingArguments(TypedDict, total=False):
    """The fields of `Sampling`, as keyword arguments."""

    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float
    seed: int
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    biases: Sequence[tuple[int, float]]
    logprobs: int | None
    prompt_logprobs: int | None


class Constraint(Protocol):
    """Restricts each token of a text by the tokens before it."""

    def allowed(self, size: int) -> npt.NDArray[np.bool_]:
        """Return True for each of ``size`` tokens that may follow."""
        ...

    def take(self, token: int) -> None:
        """Continue after a chosen token."""
        ...


@dataclass(frozen=True)
class Sampling:
    """Sampling options.

    ``temperature`` 0 takes the likeliest token. Otherwise a token is sampled from the ``top_k``
    likeliest tokens and the fewest tokens with a total probability of ``top_p``, without those that
    are less likely than ``min_p`` times the likeliest; a higher temperature flattens the
    distribution. The samples of a sequence depend only on ``seed`` and its number.

    Before that, scores change: ``biases`` (pairs of token and bias) are added, and penalties lower
    the scores of earlier tokens, see `Adjustment`. ``logprobs`` is the number of likeliest tokens
    to report with each token, by the model's own scores; None reports nothing. ``prompt_logprobs``
    is the same for the tokens of the prompt after its first.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float = 0.0
    seed: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    biases: Sequence[tuple[int, float]] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < np.inf:
            raise UserError(f"temperature: expected at least 0, got: {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top-k: expected at least 1, got: {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UserError(f"top-p: expected above 0, at most 1, got: {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise UserError(f"min-p: expected 0 to 1, got: {self.min_p}")
        if self.seed < 0:
            raise UserError(f"seed: expected at least 0, got: {self.seed}")
        self._check_penalties()
        for name in ("logprobs", "prompt_logprobs"):
            count = getattr(self, name)
            if count is not None and not 0 <= count <= MOST_LIKELY:
                raise UserError(f"{name}: expected 0 to {MOST_LIKELY}, got: {count}")

    def _check_penalties(self) -> None:
        for name in ("presence", "frequency"):
            penalty = getattr(self, f"{name}_penalty")
            if not -_PENALTY <= penalty <= _PENALTY:
                most = f"{-_PENALTY:g} to {_PENALTY:g}"
                raise UserError(f"{name}-penalty: expected {most}, got: {penalty}")
        if not 0 < self.repetition_penalty < np.inf:
            got = self.repetition_penalty
            raise UserError(f"repetition-penalty: expected above 0, got: {got}")
        for token, bias in self.biases:
            if not np.isfinite(bias):
                raise UserError(f"biases: expected numbers, got: {bias} for token {token}")


class Sampler:
    """Chooses the tokens of the sequence with this ``number``, which begins with ``prompt``."""

    def __init__(
        self,
        sampling: Sampling,
        number: int,
        prompt: Iterable[int] = (),
        constraint: Constraint | None = None,
    ) -> None:
        self._how, self._constraint = sampling, constraint
        self._random = np.random.default_rng((sampling.seed, number))
        self._adjustment = Adjustment(
            prompt,
            biases=sampling.biases,
            presence=sampling.presence_penalty,
            frequency=sampling.frequency_penalty,
            repetition=sampling.repetition_penalty,
        )

    def pick(self, scores: Floats) -> int:
        """Return the next token from the ``scores`` of the vocabulary, or `NO_TOKEN`."""
        if self._adjustment.is_needed:
            scores = scores.astype(np.float64)
            self._adjustment.apply(scores)
        if self._constraint is not None:
            allowed = self._constraint.allowed(len(scores))
            if not allowed.any():
                return NO_TOKEN
            scores = np.where(allowed, scores, -np.inf)
        token = int(scores.argmax()) if self._how.temperature == 0 else self._sample(scores)
        self._adjustment.take(token)
        if self._constraint is not None:
            self._constraint.take(token)
        return token

    def likely(self, scores: Floats, token: int) -> Likely | None:
        """Return a token and the likeliest tokens with their probabilities, if they are wanted."""
        return None if self._how.logprobs is None else _likely(scores, token, self._how.logprobs)

    @property
    def scores_prompt(self) -> bool:
        """True if the probabilities of the prompt's tokens are wanted."""
        return self._how.prompt_logprobs is not None

    def likely_in_prompt(self, scores: Floats, token: int) -> Likely:
        """Return a token of the prompt and the likeliest tokens in its place."""
        assert self._how.prompt_logprobs is not None
        return _likely(scores, token, self._how.prompt_logprobs)

    def _sample(self, scores: Floats) -> int:
        likely = scores - scores.max()
        with np.errstate(over="ignore"):
            likely *= min(1 / self._how.temperature, np.finfo(likely.dtype).max)
        np.exp(likely, out=likely)
        if self._how.min_p:
            likely[likely < self._how.min_p] = 0.0
        tokens, share = self._candidates(likely), self._random.random()
        if tokens is not None:
            return int(tokens[_place(likely[tokens], share)])
        # Only the block of the place is added up one by one.
        starts = np.arange(0, len(likely), _BLOCK)
        totals = np.add.reduceat(likely, starts, dtype=np.float64)
        ends = totals.cumsum()
        block = _place(totals, share)
        start, before = int(starts[block]), ends[block] - totals[block]
        within = (share * ends[-1] - before) / totals[block]
        return start + _place(likely[start : start + _BLOCK], within)

    def _candidates(self, likely: Floats) -> Tokens | None:
        """Return the tokens to sample from, likeliest first; None for all."""
        top_k, top_p = self._how.top_k, self._how.top_p
        if top_k is not None:
            tokens = _likeliest(likely, top_k)
            wanted = None if top_p is None else top_p * likely[tokens].sum(dtype=np.float64)
            return tokens if wanted is None else _most(likely, tokens, wanted)
        if top_p is None or top_p >= 1:
            return None
        wanted, count = top_p * likely.sum(dtype=np.float64), _FIRST
        while True:  # few tokens have most of the probability: a sort of all is seldom needed
            tokens = _likeliest(likely, count)
            if len(tokens) == len(likely) or likely[tokens].sum(dtype=np.float64) >= wanted:
                return _most(likely, tokens, wanted)
            count *= 8


def _place(likely: Floats, share: float) -> int:
    """Return the place in which a ``share`` of the total likelihood is reached."""
    ends = likely.cumsum(dtype=np.float64)
    # Below the end: the last places may be impossible.
    point = min(max(share, 0.0) * ends[-1], np.nextafter(ends[-1], 0.0))
    return int(np.searchsorted(ends, point, side="right"))


def _likely(scores: Floats, token: int, count: int) -> Likely:
    """Return a token and the ``count`` likeliest tokens, with the logarithms of probabilities."""
    shifted = scores - scores.max()
    total = np.log(np.exp(shifted).sum(dtype=np.float64))
    tokens = [token, *_likeliest(shifted, count)]
    exact = shifted[tokens].astype(np.float64) - total
    found = np.nan_to_num(exact, nan=_LEAST, neginf=_LEAST)
    return [(int(n), float(value)) for n, value in zip(tokens, found, strict=True)]


def _likeliest(likely: Floats, count: int) -> Tokens:
    """Return the ``count`` likeliest tokens in order; the first of equal tokens come first."""
    if not count:
        return np.empty(0, np.intp)
    if count >= len(likely):
        return np.argsort(-likely, kind="stable")
    # Of `count` blocks, each has a token that is at least as likely as the least of their maxima.
    size = min(_BLOCK, len(likely) // count)
    largest = np.maximum.reduceat(likely, np.arange(0, len(likely), size))
    least = np.partition(largest, len(largest) - count)[len(largest) - count]
    tokens = np.flatnonzero(likely >= least)
    return tokens[np.argsort(-likely[tokens], kind="stable")][:count]


def _most(likely: Floats, tokens: Tokens, wanted: float) -> Tokens:
    """Return the fewest ``tokens`` that reach a total of ``wanted``."""
    return tokens[: int(np.searchsorted(likely[tokens].cumsum(dtype=np.float64), wanted)) + 1]
