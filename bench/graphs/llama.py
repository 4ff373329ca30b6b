"""LLaMA 3 (arXiv 2407.21783, table 3) and a mixture of experts on the same layers.

It has grouped queries, rotary positions, RMS normalisation by primitive operators (in float32, as
its squares would overflow) and a gated feed-forward. The mixture is Mixtral 8x7B (arXiv
2401.04088): two of eight feed-forwards per token.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphs.builder import Builder
from graphs.experts import Experts, RoutedExperts
from graphs.layers import angles, attend, causal_mask, embed, heads_of, linear, merge_heads

__all__ = ["Llama"]

Tables = tuple[str, str, str]
"""Cosines, sines and the causal mask."""


@dataclass(frozen=True, kw_only=True)
class Llama:
    """Sizes of the model; ``experts`` 0 is one feed-forward for all tokens.

    With ``choices`` per token, ONNX Runtime's operator computes the mixture; else products of one-
    hot matrices do, with two choices and a capacity.
    """

    layers: int = 32
    width: int = 4096
    heads: int = 32
    groups: int = 8
    inner: int = 14336
    vocabulary: int = 128256
    experts: int = 0
    choices: int = 0
    spread: float = 500000.0
    sequence: int = 2048
    batch: int = 8
    dtype: str = "float16"

    def build(self, name: str) -> Builder:
        g = Builder(name, self.dtype)
        shape = (self.batch, self.sequence)
        x, _ = embed(g, g.input("ids", "int64", *shape), self.vocabulary, self.width, "tokens")
        tables = self._tables(g)
        for number in range(self.layers):
            with g.scope(f"layer{number}"):
                x = g.op("Add", x, self._attention(g, self._norm(g, x, "norm1"), tables))
                x = g.op("Add", x, self._feed_forward(g, self._norm(g, x, "norm2")))
        x = linear(g, self._norm(g, x, "norm"), self.width, self.vocabulary, "out", bias=False)
        g.output(x, "scores", *shape, self.vocabulary)
        return g

    def _tables(self, g: Builder) -> Tables:
        halves = self._angles(g)
        cos, sin = (g.op("Concat", half, half, axis=-1) for half in halves)
        return cos, sin, causal_mask(g, self.sequence)

    def _angles(self, g: Builder) -> tuple[str, str]:
        return angles(g, self.sequence, self.width // self.heads, self.spread)

    def _norm(self, g: Builder, x: str, name: str) -> str:
        with g.scope(name):
            y = g.op("Cast", x, to=1) if self.dtype != "float32" else x
            squares = g.op("Pow", y, g.constant(2, "float32"))
            mean = g.op("ReduceMean", squares, g.ints(-1), keepdims=1)
            root = g.op("Sqrt", g.op("Add", mean, g.constant(1e-5, "float32")))
            y = g.op("Div", y, root)
            y = g.op("CastLike", y, x) if self.dtype != "float32" else y
            return g.op("Mul", g.weight("weight", self.width), y)

    def _attention(self, g: Builder, x: str, tables: Tables) -> str:
        size = self.width // self.heads
        with g.scope("attention"):
            q, k, v = (self._project(g, x, name) for name in ("q", "k", "v"))
            q, k = (self._rotate(g, part, tables) for part in (q, k))
            k, v = (self._repeat(g, part) for part in (k, v))
            k = g.op("Transpose", k, perm=[0, 1, 3, 2])
            y = merge_heads(g, attend(g, q, k, v, size, tables[2]), self.width)
            return linear(g, y, self.width, self.width, "out", bias=False)

    def _project(self, g: Builder, x: str, name: str) -> str:
        size, heads = self.width // self.heads, self.heads if name == "q" else self.groups
        y = linear(g, x, self.width, heads * size, name, bias=False)
        return heads_of(g, y, heads, size)

    def _rotate(self, g: Builder, x: str, tables: Tables) -> str:
        """Rotate the pairs (i, i + half) of each head by the angles of the positions."""
        with g.scope("rotary"):
            low, high = g.ops(2, "Split", x, axis=-1, num_outputs=2)
            turned = g.op("Concat", g.op("Neg", high), low, axis=-1)
            return g.op("Add", g.op("Mul", x, tables[0]), g.op("Mul", turned, tables[1]))

    def _repeat(self, g: Builder, x: str) -> str:
        """Repeat the keys or values of a group for every query head of it."""
        times, size = self.heads // self.groups, self.width // self.heads
        with g.scope("repeat"):
            y = g.op("Unsqueeze", x, g.ints(2))
            wide = g.ints(self.batch, self.groups, times, self.sequence, size)
            y = g.op("Expand", y, wide)
            return g.op("Reshape", y, g.ints(self.batch, self.heads, self.sequence, size))

    def _feed_forward(self, g: Builder, x: str) -> str:
        with g.scope("mlp"):
            if self.choices:
                return RoutedExperts(self.experts, self.choices, self.width, self.inner).build(g, x)
            if self.experts:
                shape = (self.sequence, self.width, self.inner)
                return Experts(self.experts, *shape).build(g, x)
            gate = linear(g, x, self.width, self.inner, "gate", bias=False)
            gate = g.op("Mul", gate, g.op("Sigmoid", gate), name="swish")
            y = g.op("Mul", gate, linear(g, x, self.width, self.inner, "up", bias=False))
            return linear(g, y, self.inner, self.width, "down", bias=False)
