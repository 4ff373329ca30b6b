"""Choice of the next token: greedy or sampled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

import numpy as np
import numpy.typing as npt

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.kinds import Kind, integer, number
from tensoropt.runtime.support.options import Options, option
from tensoropt.runtime.text.adjusting import Adjustment
from tensoropt.runtime.text.isolation import TextFailedError

__all__ = [
    "MOST_LIKELY",
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

MOST_LIKELY = 20
"""Most likeliest tokens that are reported with a token, as in OpenAI's API."""

_FIRST = 256  # likeliest tokens that are sorted at first
_LEAST = -9999.0  # reported for a probability of 0, as OpenAI does: JSON has no infinity
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


def _take_biases(value: Any) -> tuple[tuple[int, float], ...]:
    return tuple((_TOKEN.take(token), _BIAS.take(bias)) for token, bias in value)


_TOKEN, _BIAS = integer(0), number(-1e30, 1e30)
_BIASES = Kind("pairs of a token and a finite bias", _take_biases)
_PENALTY = number(-2.0, 2.0)
_COUNT = integer(0, MOST_LIKELY)


@dataclass(frozen=True)
class Sampling(Options):
    """Sampling options, within limits that keep finite scores finite.

    ``temperature`` 0 takes the likeliest token. Otherwise a token is sampled from the ``top_k``
    likeliest tokens and the fewest tokens with a total probability of ``top_p``, without those that
    are less likely than ``min_p`` times the likeliest; a higher temperature flattens the
    distribution. The samples of a sequence depend only on ``seed`` and its number.

    Before that, scores change: ``biases`` (pairs of token and bias) are added, and penalties lower
    the scores of earlier tokens, see `Adjustment`. ``logprobs`` is the number of likeliest tokens
    to report with each token, by the model's own scores; None reports nothing. ``prompt_logprobs``
    is the same for the tokens of the prompt after its first.
    """

    temperature: float = option(0.0, number(0.0))
    top_k: int | None = option(None, integer(1, 2**63 - 1))
    top_p: float | None = option(None, number(0.0, 1.0, is_above=True))
    min_p: float = option(0.0, number(0.0, 1.0))
    seed: int = option(0, integer(0, 2**64 - 1))
    presence_penalty: float = option(0.0, _PENALTY)
    frequency_penalty: float = option(0.0, _PENALTY)
    repetition_penalty: float = option(1.0, number(0.01, 100.0))
    biases: Sequence[tuple[int, float]] = option((), _BIASES)
    logprobs: int | None = option(None, _COUNT)
    prompt_logprobs: int | None = option(None, _COUNT)


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
        """Return the next token from the ``scores`` of the vocabulary.

        Raises `UserError` if the constraint allows none, or a score is not finite.
        """
        _check(scores)
        if self._adjustment.is_needed:
            scores = scores.astype(np.float64)
            self._adjustment.apply(scores)
        if self._constraint is not None:
            scores = np.where(self._constraint.allowed(len(scores)), scores, -np.inf)
            if scores.max() == -np.inf:
                raise UserError("grammar: no token of the model can continue the text")
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
        _check(scores)
        return _likely(scores, token, self._how.prompt_logprobs)

    def _sample(self, scores: Floats) -> int:
        likely = _shifted(scores)
        with np.errstate(over="ignore"):
            likely *= min(1 / self._how.temperature, float(np.finfo(likely.dtype).max))
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


def _check(scores: Floats) -> None:
    """Raise `TextFailedError` unless scores are finite; some may be -inf, of impossible tokens."""
    most = float(scores.max())  # not a number if any is not
    if not np.isfinite(most):
        raise TextFailedError(
            "scores: expected finite numbers, as of a model that does not overflow its element "
            f"type, got: {most}"
        )


def _shifted(scores: Floats) -> Floats:
    """Return scores with 0 for the likeliest; those far below are -inf."""
    with np.errstate(over="ignore"):
        shifted: Floats = scores - scores.max()
    return shifted


def _place(likely: Floats, share: float) -> int:
    """Return the place in which a ``share`` of the total likelihood is reached."""
    ends = likely.cumsum(dtype=np.float64)
    # Below the end: the last places may be impossible.
    point = min(max(share, 0.0) * ends[-1], np.nextafter(ends[-1], 0.0))
    return int(np.searchsorted(ends, point, side="right"))


def _likely(scores: Floats, token: int, count: int) -> Likely:
    """Return a token and the ``count`` likeliest tokens, with the logarithms of probabilities."""
    shifted = _shifted(scores)
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
