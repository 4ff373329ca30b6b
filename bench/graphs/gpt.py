"""GPT-3 (Brown et al., arXiv 2005.14165, table 2.1): the forward pass over a whole sequence.

Heads of queries, keys and values are computed by one product, as in Megatron-LM: adjacent within
each head or, with ``thirds``, in three blocks as in GPT-2. The embedding is tied to the output. The
paper's width for 13 B, 5140, is not 40 heads of 128: it is 5120 here.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphs.builder import Builder
from graphs.layers import (
    attend,
    causal_mask,
    dropped,
    embed,
    layer_norm,
    linear,
    merge_heads,
    unembed,
)

__all__ = ["Gpt"]


@dataclass(frozen=True, kw_only=True)
class Gpt:
    """Sizes of the model; ``dropout`` follows the embedding and every residual.

    ``attention_dropout`` follows the softmax of scores.
    """

    layers: int = 96
    width: int = 12288
    heads: int = 96
    vocabulary: int = 50257
    sequence: int = 2048
    batch: int = 8
    dtype: str = "float16"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    thirds: bool = False

    def build(self, name: str) -> Builder:
        g = Builder(name, self.dtype)
        ids = g.input("ids", "int64", self.batch, self.sequence)
        x, table = embed(g, ids, self.vocabulary, self.width, "tokens")
        x = g.op("Add", x, g.weight("positions", self.sequence, self.width, fan_in=self.width))
        x = dropped(g, x, self.dropout)
        mask = causal_mask(g, self.sequence)
        for number in range(self.layers):
            with g.scope(f"layer{number}"):
                x = g.op("Add", x, self._attention(g, x, mask))
                x = g.op("Add", x, self._feed_forward(g, x))
        x = layer_norm(g, x, self.width, "norm")
        scores = unembed(g, x, table, (self.batch, self.sequence, self.width))
        g.output(scores, "scores", self.batch, self.sequence, self.vocabulary)
        return g

    def _attention(self, g: Builder, x: str, mask: str) -> str:
        size = self.width // self.heads
        with g.scope("attention"):
            x = layer_norm(g, x, self.width, "norm")
            packed = linear(g, x, self.width, 3 * self.width, "qkv")
            if self.thirds:
                parts = g.ops(3, "Split", packed, axis=-1, num_outputs=3)
                q, k, v = (g.op("Reshape", p, g.ints(0, 0, self.heads, size)) for p in parts)
            else:
                packed = g.op("Reshape", packed, g.ints(0, 0, self.heads, 3 * size))
                q, k, v = g.ops(3, "Split", packed, axis=-1, num_outputs=3)
            q, v = (g.op("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
            k = g.op("Transpose", k, perm=[0, 2, 3, 1])
            y = attend(g, q, k, v, size, mask, dropout=self.attention_dropout)
            y = merge_heads(g, y, self.width)
            return dropped(g, linear(g, y, self.width, self.width, "out"), self.dropout)

    def _feed_forward(self, g: Builder, x: str) -> str:
        with g.scope("mlp"):
            x = layer_norm(g, x, self.width, "norm")
            y = g.op("Gelu", linear(g, x, self.width, 4 * self.width, "up"), approximate="tanh")
            return dropped(g, linear(g, y, 4 * self.width, self.width, "down"), self.dropout)
