"""Standardisation to mean 0 and deviation 1 along some dimensions, and its gradient.

Sums are scaled rather than averaged, so that they split; narrow floats are summed in float32. Ioffe
and Szegedy (arXiv 1502.03167), section 3, with the terms collected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.dialects.build import Build, element_type, shape_of
from tensoropt.dialects.mlir import ir

__all__ = ["Standardised", "inverse_deviation", "mean", "mean_square", "standardise"]


def mean(make: Build, x: ir.Value, dims: Sequence[int]) -> ir.Value:
    """Return the mean over ``dims``, which become 1."""
    count = math.prod(shape_of(x)[dim] or 1 for dim in dims)
    return make.scaled(make.reduce("ReduceSum", x, dims), 1.0 / count)


def mean_square(make: Build, x: ir.Value, dims: Sequence[int]) -> ir.Value:
    """Return the mean of the squares over ``dims``, which become 1.

    ONNX Runtime is slow at ReduceSumSquare over dimensions that are not the last.
    """
    return mean(make, make.mul(x, x), dims)


def inverse_deviation(make: Build, variance: ir.Value, epsilon: float) -> ir.Value:
    """Return 1 / sqrt(``variance`` + ``epsilon``)."""
    return make.unary("Reciprocal", make.unary("Sqrt", make.shifted(variance, epsilon)))


@dataclass(frozen=True)
class Standardised:
    """``value`` is (x - mean) ``inverse``, or x ``inverse`` if no mean is subtracted."""

    make: Build
    value: ir.Value
    inverse: ir.Value
    dims: Sequence[int]
    centred: bool

    def gradient(self, g: ir.Value, product: ir.Value) -> ir.Value:
        """Return dX from the gradient ``g`` of ``value`` and the ``product`` of both.

        dX = inverse (g - value mean(g value) - mean(g)); the last term only if a mean is
        subtracted.
        """
        make = self.make
        found = make.sub(g, make.mul(self.value, mean(make, product, self.dims)))
        if self.centred:
            found = make.sub(found, mean(make, g, self.dims))
        return make.mul(found, self.inverse)

    def mean_gradient(self, dy: ir.Value) -> ir.Value:
        """Return dX from the gradient of the mean: dX = dy / n."""
        return self._divide_by_count(dy)

    def inverse_gradient(self, dy: ir.Value) -> ir.Value:
        """Return dX from the gradient of the inverse: dX = -dy inverse^2 value / n."""
        share = self.make.mul(self._divide_by_count(dy), self.make.mul(self.inverse, self.inverse))
        return self.make.unary("Neg", self.make.mul(self.value, share))

    def _divide_by_count(self, dy: ir.Value) -> ir.Value:
        """Return ``dy`` in the type of the values, divided by the number of elements."""
        make = self.make
        count = math.prod(shape_of(self.value)[dim] or 1 for dim in self.dims)
        return make.scaled(make.cast(dy, element_type(self.value)), 1.0 / count)


def standardise(
    make: Build, x: ir.Value, dims: Sequence[int], epsilon: float, *, centred: bool = True
) -> Standardised:
    """Return ``x`` standardised over ``dims``, with ``epsilon`` added to the variance."""
    x = make.sub(x, mean(make, x, dims)) if centred else x
    inverse = inverse_deviation(make, mean_square(make, x, dims), epsilon)
    return Standardised(make, make.mul(x, inverse), inverse, dims, centred)
