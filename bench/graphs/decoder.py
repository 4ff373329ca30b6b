"""One step of a decoder with a KV cache, as in serving exports, with symbolic sizes of activations.

Takes the new tokens and, per layer, the keys and values of all earlier tokens. Returns the scores
of the new tokens, and the keys and values extended by them. Attention, normalisation and rotation
are primitive operators, operators of the standard since opset 23, or ONNX Runtime's own
(`operators`). Weights are floating-point or, with ``bits`` 4, of ONNX Runtime's MatMulNBits. If it
is ``packed``, one product makes query, key and value, and one makes gate and up, as in Phi-3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphs.builder import Builder
from graphs.cached import Attention, Cached, Primitive, Runtime, Standard
from graphs.layers import embed, linear, linear_4_bits

__all__ = ["Decoder"]

_OPERATORS: Mapping[str, type[Cached]] = {
    "primitive": Primitive,
    "standard": Standard,
    "runtime": Runtime,
}


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """Sizes of a decoder; ``positions`` is the longest sequence of the tables of angles."""

    layers: int = 2
    width: int = 64
    heads: int = 4
    groups: int = 2
    inner: int = 96
    vocabulary: int = 256
    positions: int = 64
    operators: str = "primitive"
    bits: int = 0
    dtype: str = "float32"
    packed: bool = False

    def build(self, name: str) -> Builder:
        kind = _OPERATORS[self.operators]
        g = Builder(name, self.dtype, kind.opset)
        ids = g.input("ids", "int64", "batch", "sequence")
        pasts = [self._past(g, number) for number in range(self.layers)]
        size = self.width // self.heads
        cached = kind(g, self.heads, self.groups, size, self.positions, ids, pasts[0][0])
        x, _ = embed(g, ids, self.vocabulary, self.width, "tokens")
        presents = []
        for number, past in enumerate(pasts):
            with g.scope(f"layer{number}"):
                found = self._attention(g, cached, cached.norm(x, "norm1"), past)
                x = g.op("Add", x, found.result)
                x = g.op("Add", x, self._feed_forward(g, cached.norm(x, "norm2")))
                presents.append(found.presents)
        scores = self._linear(g, cached.norm(x, "norm"), self.width, self.vocabulary, "out")
        g.output(scores, "scores", "batch", "sequence", self.vocabulary)
        for number, held in enumerate(presents):
            self._present(g, number, held)
        return g

    def _past(self, g: Builder, number: int) -> tuple[str, str]:
        shape = ("batch", self.groups, "past", self.width // self.heads)
        key, value = (g.input(f"past.{number}.{n}", g.dtype, *shape) for n in ("key", "value"))
        return key, value

    def _present(self, g: Builder, number: int, presents: tuple[str, str]) -> None:
        shape = ("batch", self.groups, "past + sequence", self.width // self.heads)
        for held, name in zip(presents, ("key", "value"), strict=True):
            g.output(held, f"present.{number}.{name}", *shape)

    def _attention(self, g: Builder, cached: Cached, x: str, past: tuple[str, str]) -> Attention:
        with g.scope("attention"):
            shared = self.width // self.heads * self.groups
            sizes = {"q": self.width, "k": shared, "v": shared}
            if self.packed:
                both = self._linear(g, x, self.width, sum(sizes.values()), "qkv")
                q, k, v = cached.unpack(both, *sizes.values())
            else:
                q, k, v = (self._linear(g, x, self.width, n, name) for name, n in sizes.items())
            found = cached.attend(q, k, v, past)
            return replace(
                found, result=self._linear(g, found.result, self.width, self.width, "out")
            )

    def _feed_forward(self, g: Builder, x: str) -> str:
        with g.scope("mlp"):
            if self.packed:
                both = self._linear(g, x, self.width, 2 * self.inner, "gate_up")
                gate, up = g.ops(2, "Split", both, g.ints(self.inner, self.inner), axis=-1)
            else:
                gate, up = (self._linear(g, x, self.width, self.inner, n) for n in ("gate", "up"))
            gate = g.op("Mul", gate, g.op("Sigmoid", gate), name="swish")
            y = g.op("Mul", gate, up)
            return self._linear(g, y, self.inner, self.width, "down")

    def _linear(self, g: Builder, x: str, inputs: int, outputs: int, name: str) -> str:
        if self.bits == 4:
            return linear_4_bits(g, x, inputs, outputs, name)
        return linear(g, x, inputs, outputs, name, bias=False)
