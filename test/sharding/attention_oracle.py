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

    def forward(self, operands: Operands) -> tuple[Array, Array]:
        """Return the result, and the logarithms of the sums of exponentials."""
        weights, lse, _ = self._weights(operands)
        return weights @ self._repeated(operands.v, operands), lse

    def backward(self, operands: Operands, dy: Array) -> tuple[Array, ...]:
        """Return the gradients of query, key, value and bias."""
        weights, _, slope = self._weights(operands)
        k, v = self._repeated(operands.k, operands), self._repeated(operands.v, operands)
        y = weights @ v
        scores = weights * (dy @ v.swapaxes(-1, -2) - (dy * y).sum(-1, keepdims=True))
        raw = scores * slope * self.scale
        gradients = [
            raw @ k,
            self._summed(raw.swapaxes(-1, -2) @ operands.q, operands),
            self._summed(weights.swapaxes(-1, -2) @ dy, operands),
        ]
        if operands.bias is not None:
            pairs = enumerate(zip(operands.bias.shape, scores.shape, strict=True))
            dims = tuple(dim for dim, (size, whole) in pairs if size == 1 and whole > 1)
            gradients.append(scores.sum(dims, keepdims=True))
        return tuple(gradients)

    def _weights(self, operands: Operands) -> tuple[Array, Array, Array]:
        """Return the softmax, its logarithms of sums, and the slope of the limit of scores."""
        q, k = operands.q.astype(np.float64), self._repeated(operands.k, operands)
        scores = self.scale * (q @ k.swapaxes(-1, -2))
        slope = np.ones_like(scores)
        if self.softcap:
            bounded = np.tanh(scores / self.softcap)
            scores, slope = self.softcap * bounded, 1 - bounded**2
        if operands.bias is not None:
            scores = scores + operands.bias
        scores = np.where(self._seen(operands, scores.shape), scores, -np.inf)
        largest = scores.max(-1, keepdims=True)
        exponentials = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
        total = exponentials.sum(-1, keepdims=True)
        with np.errstate(divide="ignore"):
            lse = (largest + np.log(total))[..., 0]
        return exponentials / np.where(total == 0, 1, total), lse, slope

    def _seen(self, operands: Operands, shape: tuple[int, ...]) -> Array:
        first = 0 if operands.offset is None else int(operands.offset[0])
        row, key = np.arange(shape[2]).reshape(-1, 1) + first, np.arange(shape[3])
        seen = np.ones(shape, bool)
        if self.causal:
            seen &= key <= row
        if self.window:
            seen &= key > row - self.window
        if operands.lengths is not None:
            seen &= key < operands.lengths.reshape(-1, 1, 1, 1)
        return seen

    @staticmethod
    def _repeated(x: Array, operands: Operands) -> Array:
        return np.repeat(x.astype(np.float64), operands.q.shape[1] // x.shape[1], axis=1)

    @staticmethod
    def _summed(x: Array, operands: Operands) -> Array:
        batch, heads, *rest = x.shape
        shared = operands.k.shape[1]
        return x.reshape(batch, shared, heads // shared, *rest).sum(2)
