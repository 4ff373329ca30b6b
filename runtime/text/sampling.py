"""Choice of the next token: greedy or sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tensoropt.runtime.support.errors import UserError

__all__ = ["Sampler", "Sampling"]

Floats = npt.NDArray[np.floating[Any]]
Tokens = npt.NDArray[np.intp]

_FIRST = 256  # likeliest tokens that are sorted at first


@dataclass(frozen=True)
class Sampling:
    """Sampling options.

    ``temperature`` 0 takes the likeliest token. Otherwise a token is sampled from the ``top_k``
    likeliest tokens and the fewest tokens with a total probability of ``top_p``; a higher
    temperature flattens the distribution. The samples of a sequence depend only on ``seed`` and
    its number.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < np.inf:
            raise UserError(f"temperature: expected at least 0, got: {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top-k: expected at least 1, got: {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UserError(f"top-p: expected above 0, at most 1, got: {self.top_p}")
        if self.seed < 0:
            raise UserError(f"seed: expected at least 0, got: {self.seed}")


class Sampler:
    """Chooses the tokens of the sequence with this ``number``."""

    def __init__(self, sampling: Sampling, number: int) -> None:
        self._how = sampling
        self._random = np.random.default_rng((sampling.seed, number))

    def pick(self, scores: Floats) -> int:
        """Return the next token from the ``scores`` of the vocabulary."""
        if self._how.temperature == 0:
            return int(scores.argmax())
        scaled = scores.astype(np.float64)
        likely = np.exp((scaled - scaled.max()) / self._how.temperature)
        tokens = self._candidates(likely)
        ends = (likely if tokens is None else likely[tokens]).cumsum()
        place = int(np.searchsorted(ends, self._random.random() * ends[-1], side="right"))
        place = min(place, len(ends) - 1)
        return place if tokens is None else int(tokens[place])

    def _candidates(self, likely: Floats) -> Tokens | None:
        """Return the tokens to sample from, likeliest first; None for all."""
        top_k, top_p = self._how.top_k, self._how.top_p
        if top_k is not None:
            tokens = _likeliest(likely, top_k)
            return tokens if top_p is None else _most(likely, tokens, top_p * likely[tokens].sum())
        if top_p is None or top_p >= 1:
            return None
        wanted, count = top_p * likely.sum(), _FIRST
        while True:  # few tokens have most of the probability: a sort of all is seldom needed
            tokens = _likeliest(likely, count)
            if len(tokens) == len(likely) or likely[tokens].sum() >= wanted:
                return _most(likely, tokens, wanted)
            count *= 8


def _likeliest(likely: Floats, count: int) -> Tokens:
    """Return the ``count`` likeliest tokens in order; the first of equal tokens come first."""
    if count >= len(likely):
        return np.argsort(-likely, kind="stable")
    least = np.partition(likely, len(likely) - count)[len(likely) - count]
    tokens = np.flatnonzero(likely >= least)
    return tokens[np.argsort(-likely[tokens], kind="stable")][:count]


def _most(likely: Floats, tokens: Tokens, wanted: float) -> Tokens:
    """Return the fewest ``tokens`` that reach a total of ``wanted``."""
    return tokens[: int(np.searchsorted(likely[tokens].cumsum(), wanted)) + 1]
