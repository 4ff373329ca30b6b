"""One layer of a language model as Megatron-LM splits it, with attention by primitive operators.

Queries, keys and values are one product. As in Sailor's copies of Megatron's layers for OPT and
GPT-Neo, scores are not scaled and only that product has a bias. The input is summed with a weight
in front of the layer, so that a training step has the gradient of the layer's input.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphs.builder import Builder
from graphs.layers import causal_mask, dropped, layer_norm, linear, mask_scores, merge_heads

__all__ = ["LAYER", "MegatronLayer"]

LAYER = "layer"
"""The scope of the layer in the names of nodes."""


@dataclass(frozen=True, kw_only=True)
class MegatronLayer:
    """Sizes of a layer; ``dropout`` follows attention and feed-forward."""

    width: int = 1024
    heads: int = 16
    sequence: int = 2048
    batch: int = 1
    activation: str = "Relu"
    dropout: float = 0.0
    dtype: str = "float32"

    def build(self, name: str) -> Builder:
        g = Builder(name, self.dtype)
        x = g.input("x", self.dtype, self.batch, self.sequence, self.width)
        before = g.weight("before", self.sequence, self.width, fan_in=self.width)
        x, mask = g.op("Add", x, before), causal_mask(g, self.sequence)
        with g.scope(LAYER):
            x = g.op("Add", x, self._attention(g, x, mask), name="sum1")
            x = g.op("Add", x, self._feed_forward(g, x), name="sum2")
        g.output(x, "y", self.batch, self.sequence, self.width)
        return g

    def _attention(self, g: Builder, x: str, mask: str) -> str:
        size = self.width // self.heads
        x = layer_norm(g, x, self.width, "norm1")
        packed = linear(g, x, self.width, 3 * self.width, "qkv")
        packed = g.op("Reshape", packed, g.ints(0, 0, self.heads, 3 * size))
        q, k, v = g.ops(3, "Split", packed, axis=-1, num_outputs=3)
        q, v = (g.op("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
        scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 2, 3, 1]), name="scores")
        odds = g.op("Softmax", mask_scores(g, scores, mask), axis=-1)
        y = merge_heads(g, g.op("MatMul", odds, v, name="context"), self.width)
        return dropped(g, linear(g, y, self.width, self.width, "out", bias=False), self.dropout)

    def _feed_forward(self, g: Builder, x: str) -> str:
        x = layer_norm(g, x, self.width, "norm2")
        y = g.op(self.activation, linear(g, x, self.width, 4 * self.width, "up", bias=False))
        return dropped(
            g, linear(g, y, 4 * self.width, self.width, "down", bias=False), self.dropout
        )
