"""The vision transformer (Dosovitskiy et al., arXiv 2010.11929, table 1): base, 86 M parameters.

The class is computed from an additional first token.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphs.builder import Builder
from graphs.convnet import Map, Network, classify, embed_patches, image
from graphs.layers import attend, heads_of, layer_norm, linear, merge_heads

__all__ = ["Vit"]


@dataclass(frozen=True, kw_only=True)
class Vit(Network):
    """Sizes of the model; ``patch`` is the height and width of the image part of one token."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    patch: int = 16

    def build(self, name: str) -> Builder:
        g = Builder(name, self.dtype)
        x = embed_patches(g, image(g, self), self.batch, self.width, self.patch)
        for number in range(self.layers):
            with g.scope(f"layer{number}"):
                x = g.op("Add", x, self._attention(g, x))
                x = g.op("Add", x, self._feed_forward(g, x))
        x = layer_norm(g, x, self.width, "norm")
        first = g.op("Gather", x, g.constant(0, "int64"), axis=1, name="first")
        classify(g, Map(first, self.width, 1), self)
        return g

    def _attention(self, g: Builder, x: str) -> str:
        size = self.width // self.heads
        with g.scope("attention"):
            x = layer_norm(g, x, self.width, "norm")
            q, k, v = (linear(g, x, self.width, self.width, n) for n in ("q", "k", "v"))
            k = heads_of(g, k, self.heads, size, turned=True)
            q, v = (heads_of(g, part, self.heads, size) for part in (q, v))
            y = merge_heads(g, attend(g, q, k, v, size), self.width)
            return linear(g, y, self.width, self.width, "out")

    def _feed_forward(self, g: Builder, x: str) -> str:
        with g.scope("mlp"):
            x = layer_norm(g, x, self.width, "norm")
            y = g.op("Gelu", linear(g, x, self.width, 4 * self.width, "up"))
            return linear(g, y, 4 * self.width, self.width, "down")
