"""The Transformer for translation (Vaswani et al., arXiv 1706.03762, table 3): big, or base.

Source, target and output share one embedding. Sentences fill the whole sequence: no padding mask.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphs.builder import Builder
from graphs.layers import (
    angles,
    attend,
    causal_mask,
    embed,
    heads_of,
    layer_norm,
    linear,
    merge_heads,
    unembed,
)

__all__ = ["Translation"]


@dataclass(frozen=True, kw_only=True)
class Translation:
    """Sizes of the model; ``layers`` is the number in the encoder, and in the decoder."""

    layers: int = 6
    width: int = 1024
    heads: int = 16
    vocabulary: int = 37000
    sequence: int = 256
    batch: int = 64
    dtype: str = "float32"

    def build(self, name: str) -> Builder:
        g = Builder(name, self.dtype)
        shape = (self.batch, self.sequence)
        source, target = (g.input(n, "int64", *shape) for n in ("source", "target"))
        places = g.op("Concat", *reversed(angles(g, self.sequence, self.width)), axis=-1)
        x, table = embed(g, source, self.vocabulary, self.width, "tokens")
        memory = self._encode(g, self._placed(g, x, places))
        with g.scope("target"):
            x = g.op("Gather", table, target)
        x = self._decode(g, self._placed(g, x, places), memory)
        scores = unembed(g, x, table, (*shape, self.width))
        g.output(scores, "scores", *shape, self.vocabulary)
        return g

    def _placed(self, g: Builder, x: str, places: str) -> str:
        return g.op("Add", g.op("Mul", x, g.constant(self.width**0.5)), places)

    def _encode(self, g: Builder, x: str) -> str:
        for number in range(self.layers):
            with g.scope(f"encoder{number}"):
                x = self._attention(g, x, x, "self")
                x = self._feed_forward(g, x)
        return x

    def _decode(self, g: Builder, x: str, memory: str) -> str:
        mask = causal_mask(g, self.sequence)
        for number in range(self.layers):
            with g.scope(f"decoder{number}"):
                x = self._attention(g, x, x, "self", mask)
                x = self._attention(g, x, memory, "cross")
                x = self._feed_forward(g, x)
        return x

    def _attention(self, g: Builder, x: str, memory: str, name: str, mask: str = "") -> str:
        size = self.width // self.heads
        with g.scope(name):
            q = linear(g, x, self.width, self.width, "q")
            k, v = (linear(g, memory, self.width, self.width, n) for n in ("k", "v"))
            k = heads_of(g, k, self.heads, size, turned=True)
            q, v = (heads_of(g, part, self.heads, size) for part in (q, v))
            y = merge_heads(g, attend(g, q, k, v, size, mask), self.width)
            y = linear(g, y, self.width, self.width, "out")
            return layer_norm(g, g.op("Add", x, y), self.width, "norm")

    def _feed_forward(self, g: Builder, x: str) -> str:
        with g.scope("mlp"):
            y = g.op("Relu", linear(g, x, self.width, 4 * self.width, "up"))
            y = linear(g, y, 4 * self.width, self.width, "down")
            return layer_norm(g, g.op("Add", x, y), self.width, "norm")
