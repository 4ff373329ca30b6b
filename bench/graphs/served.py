"""One step of a decoder as onnxruntime-genai exports it, with ONNX Runtime's fused operators.

Takes the new tokens, the mask of all tokens and, per layer, a cache of keys and values with room
for `total` tokens. Returns the scores of the last token, and the caches. One product computes
queries, keys and values, which attention takes apart. Weights are floating-point or 4-bit integers
(MatMulNBits). With ``experts`` the feed-forward is a mixture of them, in 4 bits too (QMoE).
"""

from __future__ import annotations

from dataclasses import dataclass

from graphs.builder import Builder
from graphs.cached import Runtime
from graphs.layers import embed, linear, linear_4_bits

__all__ = ["Served"]

_BLOCK = 32  # weights with a common scale
_EPSILON = 1e-5
_RUNTIME = "com.microsoft"


class _Masked(Runtime):
    """The same operators, with the number of tokens from a mask."""

    def _prepare(self, positions: int, ids: str, past: str) -> None:
        g = self.g
        self.tables = self._tables(positions)
        total = self._size_of("attention_mask", 1)
        self.total = g.op("Cast", g.op("Squeeze", total, g.ints(0)), to=6)
        known = g.op("ReduceSum", "attention_mask", g.ints(1), keepdims=0)
        self.lengths = g.op("Cast", g.op("Sub", known, g.constant(1, "int64")), to=6)


@dataclass(frozen=True, kw_only=True)
class Served:
    """Sizes of a decoder with ``heads`` of ``size`` and ``groups`` of keys and values.

    Of ``experts``, each token takes ``choices``. ``bias`` adds one to the products of attention.
    """

    layers: int = 32
    width: int = 4096
    heads: int = 32
    groups: int = 8
    size: int = 128
    inner: int = 14336
    vocabulary: int = 128256
    positions: int = 8192
    experts: int = 0
    choices: int = 4
    bits: int = 0
    bias: bool = False
    dtype: str = "float16"

    def build(self, name: str) -> Builder:
        g = Builder(name, self.dtype)
        ids = g.input("input_ids", "int64", "batch", "sequence")
        g.input("attention_mask", "int64", "batch", "total")
        pasts = [self._past(g, number) for number in range(self.layers)]
        cached = _Masked(g, self.heads, self.groups, self.size, self.positions, ids, pasts[0][0])
        total, presents = embed(g, ids, self.vocabulary, self.width, "tokens")[0], []
        x = self._norm(g, total, "norm")
        for number, past in enumerate(pasts):
            with g.scope(f"layer{number}"):
                y, present = self._attention(g, cached, x, past)
                x, total = self._sum(g, total, y, "norm1")
                x, total = self._sum(g, total, self._feed_forward(g, x), "norm2")
                presents.append(present)
        last = g.op("Gather", x, g.ints(-1), axis=1, name="last")
        scores = self._linear(g, last, self.width, self.vocabulary, "out")
        g.output(scores, "scores", "batch", 1, self.vocabulary)
        for number, (key, value) in enumerate(presents):
            shape = ("batch", self.groups, "total", self.size)
            g.output(key, f"present.{number}.key", *shape)
            g.output(value, f"present.{number}.value", *shape)
        return g

    def _past(self, g: Builder, number: int) -> tuple[str, str]:
        shape = ("batch", self.groups, "past", self.size)
        key, value = (g.input(f"past.{number}.{n}", g.dtype, *shape) for n in ("key", "value"))
        return key, value

    def _norm(self, g: Builder, x: str, name: str) -> str:
        with g.scope(name):
            weight = g.weight("weight", self.width)
            return g.op("SimplifiedLayerNormalization", x, weight, epsilon=_EPSILON, stash_type=1)

    def _sum(self, g: Builder, x: str, y: str, name: str) -> tuple[str, str]:
        """Return the normalised sum, and the sum."""
        with g.scope(name):
            operands, attributes = (x, y, g.weight("weight", self.width)), {"epsilon": _EPSILON}
            kind = "SkipSimplifiedLayerNormalization"
            made = g.ops(4, kind, *operands, domain=_RUNTIME, **attributes)
            return made[0], made[3]

    def _attention(
        self, g: Builder, cached: Runtime, x: str, past: tuple[str, str]
    ) -> tuple[str, tuple[str, str]]:
        wide, shared = self.heads * self.size, self.groups * self.size
        with g.scope("attention"):
            packed = self._biased(g, x, self.width, wide + 2 * shared, "qkv")
            found = cached.attend(packed, "", "", past)
            return self._biased(g, found.result, wide, self.width, "out"), found.presents

    def _feed_forward(self, g: Builder, x: str) -> str:
        with g.scope("mlp"):
            if self.experts:
                return self._mixture(g, x)
            gate = self._linear(g, x, self.width, self.inner, "gate")
            gate = g.op("QuickGelu", gate, domain=_RUNTIME, alpha=1.0)
            y = g.op("Mul", gate, self._linear(g, x, self.width, self.inner, "up"))
            return self._linear(g, y, self.inner, self.width, "down")

    def _mixture(self, g: Builder, x: str) -> str:
        with g.scope("router"):
            odds = self._biased(g, x, self.width, self.experts, "linear")
            odds = g.op("Reshape", odds, g.ints(-1, self.experts))
        attributes = {
            "k": self.choices, "normalize_routing_weights": 1, "expert_weight_bits": 4,
            "block_size": _BLOCK, "activation_type": "swiglu", "swiglu_fusion": 1,
        }  # fmt: skip
        up = self._experts(g, "up", 2 * self.inner, self.width)
        down = self._experts(g, "down", self.width, self.inner)
        return g.op("QMoE", x, odds, *up, *down, domain=_RUNTIME, **attributes)

    def _experts(self, g: Builder, name: str, outputs: int, inputs: int) -> tuple[str, str, str]:
        with g.scope(name):
            packed = g.weight("weight", self.experts, outputs, inputs // 2, dtype="uint8")
            scales = g.weight("scales", self.experts, outputs, inputs // _BLOCK)
            return packed, scales, g.weight("bias", self.experts, outputs)

    def _biased(self, g: Builder, x: str, inputs: int, outputs: int, name: str) -> str:
        y = self._linear(g, x, inputs, outputs, name)
        return g.op("Add", y, g.weight(f"{name}.bias", outputs)) if self.bias else y

    def _linear(self, g: Builder, x: str, inputs: int, outputs: int, name: str) -> str:
        if self.bits == 4:
            return linear_4_bits(g, x, inputs, outputs, name)
        return linear(g, x, inputs, outputs, name, bias=False)
