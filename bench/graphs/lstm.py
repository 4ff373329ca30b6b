"""A two-layer LSTM language model, large of Zaremba et al. (arXiv 1409.2329): 66 M parameters.

It uses ONNX's LSTM operator, or is ``unrolled`` over the sequence into products that share their
weights. Sentences are rows of the input. Inside, and in the scores, the sequence is the first
dimension; with ``rows_first``, rows are first in the scores too.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphs.builder import Builder
from graphs.layers import embed, linear

__all__ = ["Lstm"]


@dataclass(frozen=True, kw_only=True)
class Lstm:
    layers: int = 2
    width: int = 1500
    vocabulary: int = 10000
    sequence: int = 35
    batch: int = 64
    unrolled: bool = False
    rows_first: bool = False
    dtype: str = "float32"

    def build(self, name: str) -> Builder:
        g = Builder(name, self.dtype)
        ids = g.input("ids", "int64", self.batch, self.sequence)
        ids = g.op("Transpose", ids, perm=[1, 0], name="turned")
        x, _ = embed(g, ids, self.vocabulary, self.width, "tokens")
        for number in range(self.layers):
            with g.scope(f"layer{number}"):
                x = self._unrolled(g, x) if self.unrolled else self._operator(g, x)
        shape = [self.sequence, self.batch]
        if self.rows_first:
            x, shape = g.op("Transpose", x, perm=[1, 0, 2], name="rows"), shape[::-1]
        scores = linear(g, x, self.width, self.vocabulary, "out")
        g.output(scores, "scores", *shape, self.vocabulary)
        return g

    def _operator(self, g: Builder, x: str) -> str:
        gates, width = 4 * self.width, self.width
        own, back = (g.weight(n, 1, gates, width, fan_in=width) for n in ("input", "recurrent"))
        y = g.op("LSTM", x, own, back, g.weight("bias", 1, 2 * gates), hidden_size=width)
        return g.op("Squeeze", y, g.ints(1))

    def _unrolled(self, g: Builder, x: str) -> str:
        """Compute all input products together, then the state products step by step."""
        gates = linear(g, x, self.width, 4 * self.width, "input")
        back = g.weight("recurrent", self.width, 4 * self.width, fan_in=self.width)
        steps = g.ops(self.sequence, "Split", gates, axis=0, num_outputs=self.sequence)
        hidden, cell, states = "", "", []
        for number, step in enumerate(steps):
            with g.scope(f"step{number}"):
                step = g.op("Squeeze", step, g.ints(0))
                step = g.op("Add", step, g.op("MatMul", hidden, back)) if hidden else step
                hidden, cell = self._cell(g, step, cell)
                states.append(g.op("Unsqueeze", hidden, g.ints(0)))
        return g.op("Concat", *states, axis=0)

    def _cell(self, g: Builder, gates: str, cell: str) -> tuple[str, str]:
        write, read, forget, new = g.ops(4, "Split", gates, axis=-1, num_outputs=4)
        write, read, forget = (g.op("Sigmoid", gate) for gate in (write, read, forget))
        kept = g.op("Mul", write, g.op("Tanh", new))
        cell = g.op("Add", kept, g.op("Mul", forget, cell)) if cell else kept
        return g.op("Mul", read, g.op("Tanh", cell)), cell
