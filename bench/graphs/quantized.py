"""A convolutional network with residuals, quantised to 8 bits in the form of exporters.

Before each product the activations are quantised and dequantised (QDQ). Its weights are 8-bit
integers of 7 bits with a scale per channel, its bias 32-bit integers: on processors without VNNI,
ONNX Runtime adds pairs of products in 16 bits, which would saturate with 8 bits. If ``exact``,
every scale is a power of two: sums of the integer products are exact in any order, so that runs
agree to the bit. With other scales a sum may round to the next of 256 steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from graphs.builder import Builder

__all__ = ["Quantized"]

_SIGMA = 37  # of integers that are uniform from -63 to 63
_STEP = 2.0**-5  # of the activations: from about -4 to 4 in 256 steps
_ODD = 1.0143  # not a power of two


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """``blocks`` of two 3x3 convolutions of ``channels``, and a final product with ``classes``."""

    blocks: int = 2
    channels: int = 16
    image: int = 16
    classes: int = 32
    batch: int = 4
    exact: bool = True
    dtype: str = "float32"

    @property
    def step(self) -> float:
        return _STEP * (1 if self.exact else _ODD)

    def build(self, name: str) -> Builder:
        g = Builder(name, self.dtype)
        x = g.input("x", self.dtype, self.batch, 3, self.image, self.image)
        x = self._conv(g, x, 3, "stem")
        for number in range(self.blocks):
            with g.scope(f"block{number}"):
                y = self._conv(g, g.op("Relu", x), self.channels, "conv1")
                y = self._conv(g, g.op("Relu", y), self.channels, "conv2")
                x = self._rounded(g, g.op("Add", x, y), "sum")
        x = g.op("MaxPool", g.op("Relu", x), kernel_shape=[2, 2], strides=[2, 2])
        x = g.op("Flatten", x, axis=1)
        x = self._product(g, x, self.channels * (self.image // 2) ** 2)
        g.output(x, "scores", self.batch, self.classes)
        return g

    def _conv(self, g: Builder, x: str, inputs: int, name: str) -> str:
        with g.scope(name):
            shape = (self.channels, inputs, 3, 3)
            weight, scales = self._weight(g, shape, 9 * inputs, axis=0)
            steps = g.constant(scales * self.step)
            zero = g.constant(np.zeros(self.channels), "int32")
            bias = g.weight("bias", self.channels, dtype="int32")
            bias = g.op("DequantizeLinear", bias, steps, zero, axis=0, name="bias_values")
            y = g.op("Conv", self._rounded(g, x, "input"), weight, bias, pads=[1, 1, 1, 1])
            return self._rounded(g, y, "result")

    def _product(self, g: Builder, x: str, inputs: int) -> str:
        with g.scope("classes"):
            weight, _ = self._weight(g, (inputs, self.classes), inputs, axis=1)
            y = g.op("MatMul", self._rounded(g, x, "input"), weight)
            return self._rounded(g, y, "result")

    def _weight(
        self, g: Builder, shape: tuple[int, ...], fan_in: int, axis: int
    ) -> tuple[str, np.ndarray]:
        """Return a weight of variance about 1 / ``fan_in``, and its scale per index of ``axis``."""
        exponent = round(math.log2(fan_in**-0.5 / _SIGMA))
        scales = 2.0 ** (exponent + np.arange(shape[axis]) % 3 - 1) * (1 if self.exact else _ODD)
        zeros = g.constant(np.zeros(shape[axis]), "int8")
        held = g.weight("weight", *shape, dtype="int8")
        operands = (held, g.constant(scales), zeros)
        values = g.op("DequantizeLinear", *operands, axis=axis, name="weight_values")
        return values, scales

    def _rounded(self, g: Builder, x: str, name: str) -> str:
        """Quantise to 8 bits, and back."""
        with g.scope(name):
            step, zero = g.constant(self.step), g.constant(128, "uint8")
            return g.op("DequantizeLinear", g.op("QuantizeLinear", x, step, zero), step, zero)
