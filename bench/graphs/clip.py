"""CLIP (Radford et al., arXiv 2103.00020), ViT-B/16: similarities of images and texts, 150 M.

The last position is the feature of a text, and an additional first one the feature of an image
token.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphs.builder import Builder
from graphs.convnet import Map, Network, embed_patches, image
from graphs.layers import (
    attend,
    causal_mask,
    embed,
    heads_of,
    layer_norm,
    linear,
    merge_heads,
)

__all__ = ["Clip"]


@dataclass(frozen=True, kw_only=True)
class Clip(Network):
    """Sizes of both towers; ``texts`` words in ``text_width``, compared in the latter's width."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    patch: int = 16
    text_width: int = 512
    text_heads: int = 8
    vocabulary: int = 49408
    sequence: int = 77

    def build(self, name: str) -> Builder:
        g = Builder(name, self.dtype)
        x = image(g, self)
        ids = g.input("ids", "int64", self.batch, self.sequence)
        with g.scope("image"):
            images = self._features(g, self._image(g, x), self.width)
        with g.scope("text"):
            texts = self._features(g, self._text(g, ids), self.text_width)
        scores = g.op("MatMul", images, g.op("Transpose", texts, perm=[1, 0]), name="similarity")
        g.output(scores, "scores", self.batch, self.batch)
        return g

    def _image(self, g: Builder, x: Map) -> str:
        rows = embed_patches(g, x, self.batch, self.width, self.patch)
        y = self._layers(g, rows, self.width, self.heads)
        return g.op("Gather", y, g.constant(0, "int64"), axis=1, name="first")

    def _text(self, g: Builder, ids: str) -> str:
        x, _ = embed(g, ids, self.vocabulary, self.text_width, "tokens")
        wide = (self.sequence, self.text_width)
        x = g.op("Add", x, g.weight("positions", *wide, fan_in=self.text_width))
        mask = causal_mask(g, self.sequence)
        y = self._layers(g, x, self.text_width, self.text_heads, mask)
        return g.op("Gather", y, g.constant(-1, "int64"), axis=1, name="last")

    def _layers(self, g: Builder, x: str, width: int, heads: int, mask: str = "") -> str:
        for number in range(self.layers):
            with g.scope(f"layer{number}"):
                y = layer_norm(g, x, width, "norm1")
                q, k, v = (linear(g, y, width, width, n) for n in ("q", "k", "v"))
                k = heads_of(g, k, heads, width // heads, turned=True)
                q, v = (heads_of(g, part, heads, width // heads) for part in (q, v))
                y = merge_heads(g, attend(g, q, k, v, width // heads, mask), width)
                x = g.op("Add", x, linear(g, y, width, width, "out"))
                y = linear(g, layer_norm(g, x, width, "norm2"), width, 4 * width, "up")
                y = g.op("Mul", y, g.op("Sigmoid", g.op("Mul", y, g.constant(1.702))), name="gelu")
                x = g.op("Add", x, linear(g, y, 4 * width, width, "down"))
        return x

    def _features(self, g: Builder, x: str, width: int) -> str:
        """Return the projected features, of length 1."""
        x = linear(
            g, layer_norm(g, x, width, "norm"), width, self.text_width, "project", bias=False
        )
        return g.op("LpNormalization", x, axis=-1, p=2)
