"""BERT (Devlin et al., arXiv 1810.04805), large, with the head for masked words: 336 M."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphs.builder import Builder
from graphs.layers import attend, embed, heads_of, layer_norm, linear, merge_heads, unembed

__all__ = ["Bert"]


@dataclass(frozen=True, kw_only=True)
class Bert:
    layers: int = 24
    width: int = 1024
    heads: int = 16
    vocabulary: int = 30522
    sequence: int = 512
    batch: int = 32
    dtype: str = "float32"

    def build(self, name: str) -> Builder:
        g = Builder(name, self.dtype)
        shape = (self.batch, self.sequence)
        ids, kinds, seen = (g.input(n, "int64", *shape) for n in ("ids", "segments", "mask"))
        x, table = self._embedding(g, ids, kinds)
        bias = self._bias(g, seen)
        for number in range(self.layers):
            with g.scope(f"layer{number}"):
                x = self._sum(g, x, self._attention(g, x, bias), "attention_norm")
                x = self._sum(g, x, self._feed_forward(g, x), "mlp_norm")
        g.output(self._head(g, x, table), "scores", *shape, self.vocabulary)
        return g

    def _embedding(self, g: Builder, ids: str, kinds: str) -> tuple[str, str]:
        x, table = embed(g, ids, self.vocabulary, self.width, "tokens")
        x = g.op("Add", x, embed(g, kinds, 2, self.width, "segments")[0])
        x = g.op("Add", x, g.weight("positions", self.sequence, self.width, fan_in=self.width))
        return layer_norm(g, x, self.width, "norm"), table

    def _bias(self, g: Builder, seen: str) -> str:
        """Return [batch, 1, 1, sequence]: 0 for words that count, the lowest number for others."""
        with g.scope("mask"):
            wide = g.op("Unsqueeze", g.op("Cast", seen, to=9), g.ints(1, 2))
            return g.op("Where", wide, g.constant(0), g.constant(np.finfo(self.dtype).min))

    def _sum(self, g: Builder, x: str, y: str, name: str) -> str:
        return layer_norm(g, g.op("Add", x, y), self.width, name)

    def _attention(self, g: Builder, x: str, bias: str) -> str:
        size = self.width // self.heads
        with g.scope("attention"):
            q, k, v = (linear(g, x, self.width, self.width, n) for n in ("q", "k", "v"))
            k = heads_of(g, k, self.heads, size, turned=True)
            q, v = (heads_of(g, part, self.heads, size) for part in (q, v))
            y = merge_heads(g, attend(g, q, k, v, size, bias=bias), self.width)
            return linear(g, y, self.width, self.width, "out")

    def _feed_forward(self, g: Builder, x: str) -> str:
        with g.scope("mlp"):
            y = g.op("Gelu", linear(g, x, self.width, 4 * self.width, "up"))
            return linear(g, y, 4 * self.width, self.width, "down")

    def _head(self, g: Builder, x: str, table: str) -> str:
        with g.scope("head"):
            x = g.op("Gelu", linear(g, x, self.width, self.width, "dense"))
            x = layer_norm(g, x, self.width, "norm")
            y = unembed(g, x, table, (self.batch, self.sequence, self.width))
            return g.op("Add", y, g.weight("bias", self.vocabulary))
