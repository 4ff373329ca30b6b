"""Mixtures of experts: by one-hot products, and by ONNX Runtime's operator.

`Experts` follow GShard (arXiv 2006.16668, section 2.2), two per token. Each sequence is a group: an
expert takes `capacity` of its tokens, first choices first, and drops later ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphs.builder import Builder
from graphs.layers import linear

__all__ = ["Experts", "RoutedExperts"]

_CHOICES = 2
_ROOM = 1.25  # capacity over the need of an even distribution


@dataclass(frozen=True)
class Experts:
    experts: int
    sequence: int
    width: int
    inner: int

    @property
    def capacity(self) -> int:
        return int(_ROOM * _CHOICES * self.sequence / self.experts)

    def build(self, g: Builder, x: str) -> str:
        """Return the layer of ``x``, [b(atch), s(equence), d]; e(xperts), c(apacity), f: inner."""
        weights, chosen = self._gates(g, x)
        slots = self._slots(g, chosen)
        chosen, slots = (g.op("CastLike", held, x) for held in (chosen, slots))
        combine = _product(g, "combine", "bks,bkse,bksc->bsec", weights, chosen, slots)
        dispatch = _product(g, "dispatch", "bkse,bksc->bsec", chosen, slots)
        y = _product(g, "send", "bsec,bsd->ebcd", dispatch, x)
        y = self._feed_forward(g, y)
        return _product(g, "collect", "bsec,ebcd->bsd", combine, y)

    def _gates(self, g: Builder, x: str) -> tuple[str, str]:
        """Return the weight of each choice, [b, k, s], and its expert as 0 and 1, [b, k, s, e]."""
        with g.scope("gates"):
            scores = linear(g, x, self.width, self.experts, "router", bias=False)
            odds = g.op("Softmax", scores, axis=-1)
            best, which = g.ops(2, "TopK", odds, g.ints(_CHOICES), axis=-1)
            best = g.op("Div", best, g.op("ReduceSum", best, g.ints(-1), keepdims=1))
            count, marks = g.constant(self.experts, "int64"), g.ints(0, 1)
            chosen = g.op("OneHot", which, count, marks, axis=-1)
            return (
                g.op("Transpose", best, perm=[0, 2, 1]),
                g.op("Transpose", chosen, perm=[0, 2, 1, 3]),
            )

    def _slots(self, g: Builder, chosen: str) -> str:
        """Return the position of each choice in its expert's queue, one-hot over c, [b, k, s, c].

        Positions beyond the capacity are all zeros.
        """
        with g.scope("slots"):
            queue = g.op("Reshape", chosen, g.ints(0, -1, self.experts))
            before = g.op("CumSum", queue, g.constant(1, "int64"), exclusive=1)
            before = g.op("Reshape", before, g.ints(0, _CHOICES, self.sequence, self.experts))
            place = g.op("ReduceSum", g.op("Mul", before, chosen), g.ints(-1), keepdims=0)
            count = g.constant(self.capacity, "int64")
            return g.op("OneHot", place, count, g.ints(0, 1), axis=-1)

    def _feed_forward(self, g: Builder, x: str) -> str:
        wide = (self.experts, self.width, self.inner)
        gate, up = (g.weight(name, *wide, fan_in=self.width) for name in ("gate", "up"))
        down = g.weight("down", self.experts, self.inner, self.width, fan_in=self.inner)
        y = _product(g, "experts_gate", "ebcd,edf->ebcf", x, gate)
        y = g.op("Mul", y, g.op("Sigmoid", y), name="swish")
        y = g.op("Mul", y, _product(g, "experts_up", "ebcd,edf->ebcf", x, up))
        return _product(g, "experts_down", "ebcf,efd->ebcd", y, down)


@dataclass(frozen=True)
class RoutedExperts:
    """Experts with gates, ``choices`` per token (com.microsoft.MoE)."""

    experts: int
    choices: int
    width: int
    inner: int

    def build(self, g: Builder, x: str) -> str:
        """Return the layer of ``x``, [batch, sequence, width]."""
        scores = linear(g, x, self.width, self.experts, "router", bias=False)
        scores = g.op("Reshape", scores, g.ints(-1, self.experts))
        up = g.weight("up", self.experts, 2 * self.inner, self.width, fan_in=self.width)
        down = g.weight("down", self.experts, self.width, self.inner, fan_in=self.inner)
        operands = (x, scores, up, "", down)
        attributes = {
            "k": self.choices, "normalize_routing_weights": 1, "activation_type": "swiglu",
            "swiglu_fusion": 1, "activation_alpha": 1.0, "activation_beta": 0.0,
        }  # fmt: skip
        return g.op("MoE", *operands, name="mixture", domain="com.microsoft", **attributes)


def _product(g: Builder, name: str, equation: str, *operands: str) -> str:
    return g.op("Einsum", *operands, name=name, equation=equation)
