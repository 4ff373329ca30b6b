"""Changes of scores before a token is chosen: biases, and penalties of earlier tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Adjustment"]

Floats = npt.NDArray[np.floating[Any]]


class Adjustment:
    """Adds biases to scores, and lowers the scores of tokens that a text has already.

    ``presence`` is subtracted from the score of a chosen token, ``frequency`` once per time that it
    was chosen. ``repetition`` divides a positive score, and multiplies a negative one, of the
    tokens of the prompt too.
    """

    def __init__(
        self,
        prompt: Iterable[int],
        *,
        biases: Sequence[tuple[int, float]] = (),
        presence: float = 0.0,
        frequency: float = 0.0,
        repetition: float = 1.0,
    ) -> None:
        self._presence, self._frequency, self._repetition = presence, frequency, repetition
        self._has_penalties = bool(presence or frequency or repetition != 1)
        self._biased = np.array([token for token, _ in biases], np.intp)
        self._biases = np.array([bias for _, bias in biases], np.float64)
        self._counts = dict.fromkeys(prompt, 0) if repetition != 1 else {}

    @property
    def is_needed(self) -> bool:
        """True if scores may change."""
        return self._has_penalties or bool(len(self._biased))

    def take(self, token: int) -> None:
        """Count a chosen token."""
        if self._has_penalties:
            self._counts[token] = self._counts.get(token, 0) + 1

    def apply(self, scores: Floats) -> None:
        """Change the scores of all tokens, in place."""
        scores[self._biased] += self._biases
        if not self._counts:
            return
        tokens = np.fromiter(self._counts, np.intp)
        counts = np.fromiter(self._counts.values(), np.float64)
        own = scores[tokens]
        own = np.where(own > 0, own / self._repetition, own * self._repetition)
        scores[tokens] = own - self._frequency * counts - self._presence * (counts > 0)
