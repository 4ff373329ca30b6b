"""Transformers side by side, with an input each and one head: several kinds of data of a sample.

Their first layers can be one trunk, and layers can follow the sum of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphs.builder import Builder
from graphs.layers import encoder_layer, linear

__all__ = ["Towers"]


@dataclass(frozen=True, kw_only=True)
class Towers:
    """Sizes of the model: the number of ``layers`` of each tower, of the trunk and of the end.

    With a trunk there is one input.
    """

    layers: tuple[int, ...] = (8, 8, 8, 8)
    trunk: int = 0
    end: int = 0
    width: int = 1024
    heads: int = 16
    sequence: int = 256
    classes: int = 1000
    batch: int = 4
    dtype: str = "float16"

    def build(self, name: str) -> Builder:
        g = Builder(name, self.dtype)
        shape = self.batch, self.sequence, self.width
        shared = self._layers(g, g.input("x", self.dtype, *shape), self.trunk, "trunk")
        y = ""
        for number, layers in enumerate(self.layers):
            alone = self.trunk == 0 and number > 0
            x = g.input(f"x{number}", self.dtype, *shape) if alone else shared
            x = self._layers(g, x, layers, f"tower{number}")
            y = g.op("Add", y, x) if y else x
        y = self._layers(g, y, self.end, "end")
        scores = linear(g, y, self.width, self.classes, "head")
        g.output(scores, "scores", self.batch, self.sequence, self.classes)
        return g

    def _layers(self, g: Builder, x: str, layers: int, name: str) -> str:
        for number in range(layers):
            with g.scope(f"{name}.layer{number}"):
                x = encoder_layer(g, x, self.width, self.heads)
        return x
