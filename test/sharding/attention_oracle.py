"""Attention and its gradients in NumPy, in float64, with all scores at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Operands", "Oracle"]

Array = npt.NDArray[Any]


class Operands(NamedTuple):
    """The operands of `tensoropt.Attention`."""

    q: Array
    k: Array
    v: Array
    bias: Array | None = None
    lengths: Array | None = None
    offset: Array | None = None


@dataclass(frozen=True)
class Oracle:
    """Attention with the attributes of `tensoropt.Attention`."""

    scale: float
    causal: int = 0
    window: int = 0
    softcap: float = 0.0

    def forward(self, given: Operands) -> tuple[Array, Array]:
        """Return the result, and the logarithms of the sums of exponentials."""
        weights, lse, _ = self._weights(given)
        return weights @ self._repeated(given.v, given), lse

    def backward(self, given: Operands, dy: Array) -> tuple[Array, ...]:
        """Return the gradients of query, key, value and bias."""
        weights, _, slope = self._weights(given)
        k, v = self._repeated(given.k, given), self._repeated(given.v, given)
        y = weights @ v
        scores = weights * (dy @ v.swapaxes(-1, -2) - (dy * y).sum(-1, keepdims=True))
        raw = scores * slope * self.scale
        found = [
            raw @ k,
            self._summed(raw.swapaxes(-1, -2) @ given.q, given),
            self._summed(weights.swapaxes(-1, -2) @ dy, given),
        ]
        if given.bias is not None:
            pairs = enumerate(zip(given.bias.shape, scores.shape, strict=True))
            dims = tuple(dim for dim, (own, whole) in pairs if own == 1 and whole > 1)
            found.append(scores.sum(dims, keepdims=True))
        return tuple(found)

    def _weights(self, given: Operands) -> tuple[Array, Array, Array]:
        """Return the softmax, its logarithms of sums, and the slope of the limit of scores."""
        q, k = given.q.astype(np.float64), self._repeated(given.k, given)
        scores = self.scale * (q @ k.swapaxes(-1, -2))
        slope = np.ones_like(scores)
        if self.softcap:
            bounded = np.tanh(scores / self.softcap)
            scores, slope = self.softcap * bounded, 1 - bounded**2
        if given.bias is not None:
            scores = scores + given.bias
        scores = np.where(self._seen(given, scores.shape), scores, -np.inf)
        largest = scores.max(-1, keepdims=True)
        exponentials = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
        total = exponentials.sum(-1, keepdims=True)
        with np.errstate(divide="ignore"):
            lse = (largest + np.log(total))[..., 0]
        return exponentials / np.where(total == 0, 1, total), lse, slope

    def _seen(self, given: Operands, shape: tuple[int, ...]) -> Array:
        first = 0 if given.offset is None else int(given.offset[0])
        row, key = np.arange(shape[2]).reshape(-1, 1) + first, np.arange(shape[3])
        seen = np.ones(shape, bool)
        if self.causal:
            seen &= key <= row
        if self.window:
            seen &= key > row - self.window
        if given.lengths is not None:
            seen &= key < given.lengths.reshape(-1, 1, 1, 1)
        return seen

    @staticmethod
    def _repeated(x: Array, given: Operands) -> Array:
        return np.repeat(x.astype(np.float64), given.q.shape[1] // x.shape[1], axis=1)

    @staticmethod
    def _summed(x: Array, given: Operands) -> Array:
        batch, heads, *rest = x.shape
        shared = given.k.shape[1]
        return x.reshape(batch, shared, heads // shared, *rest).sum(2)
