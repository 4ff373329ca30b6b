"""Choice of the next token: greedy or sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tensoropt.runtime.support.errors import UserError

__all__ = ["Sampler", "Sampling"]

Floats = npt.NDArray[np.floating[Any]]


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
        order = np.argsort(-scores, kind="stable")[: self._how.top_k]
        scaled = scores[order].astype(np.float64) / self._how.temperature
        likely = np.exp(scaled - scaled[0])
        likely /= likely.sum()
        if self._how.top_p is not None:  # includes the token that reaches top_p
            likely = likely[: int(np.searchsorted(likely.cumsum(), self._how.top_p)) + 1]
        return int(order[self._random.choice(len(likely), p=likely / likely.sum())])
