"""Attention over a KV cache, normalisation and rotation, by three sets of operators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphs.builder import OPSET, Builder
from graphs.layers import attend, heads_of, merge_heads

__all__ = ["Attention", "Cached", "Primitive", "Runtime", "Standard"]

_SPREAD = 10000.0
_EPSILON = 1e-5


@dataclass(frozen=True)
class Attention:
    """Attention of the new tokens, [batch, sequence, width], and the cache extended by them."""

    result: str
    presents: tuple[str, str]


class Cached(ABC):
    """Operators of a decoder layer with ``heads`` of the query, ``groups`` of keys and values.

    Each has ``size`` elements. ``ids`` are the new tokens and ``past`` is keys of the cache, both
    used for their sizes.
    """

    opset: ClassVar[int] = OPSET

    def __init__(
        self, g: Builder, heads: int, groups: int, size: int, positions: int, ids: str, past: str
    ) -> None:
        self.g, self.heads, self.groups, self.size = g, heads, groups, size
        with g.scope("positions"):
            self._prepare(positions, ids, past)

    @abstractmethod
    def _prepare(self, positions: int, ids: str, past: str) -> None:
        """Add the nodes that all layers share."""

    @abstractmethod
    def norm(self, x: str, name: str) -> str:
        """Return ``x`` over the root of the mean of its squares (RMSNorm), times weights."""

    @abstractmethod
    def attend(self, q: str, k: str, v: str, past: tuple[str, str]) -> Attention:
        """Rotate and attend; ``q``, ``k`` and ``v`` are [batch, sequence, heads * size]."""

    def unpack(self, packed: str, *sizes: int) -> tuple[str, str, str]:
        """Return query, key and value of ``sizes`` from the result of one product."""
        q, k, v = self.g.ops(3, "Split", packed, self.g.ints(*sizes), axis=-1)
        return q, k, v

    def _size_of(self, x: str, dim: int) -> str:
        """Return a size as a vector of one element."""
        return self.g.op("Shape", x, start=dim, end=dim + 1)

    def _tables(self, positions: int) -> tuple[str, str]:
        """Return cosines and sines, both [positions, size / 2]."""
        frequencies = _SPREAD ** -(np.arange(0, self.size, 2) / self.size)
        phases = np.arange(positions)[:, None] * frequencies
        return self.g.constant(np.cos(phases)), self.g.constant(np.sin(phases))

    def _steps(self, ids: str, past: str) -> tuple[str, str]:
        """Return the positions of the new tokens, [sequence], and of all, [past + sequence]."""
        g, first = self.g, self._size_of(past, 2)
        total = g.op("Add", first, self._size_of(ids, 1))
        scalars = [g.op("Squeeze", size, g.ints(0)) for size in (first, total)]
        one, zero = g.constant(1, "int64"), g.constant(0, "int64")
        return g.op("Range", *scalars, one), g.op("Range", zero, scalars[1], one)


class Primitive(Cached):
    """Operators that every runtime has; keys and values are repeated for their queries."""

    def _prepare(self, positions: int, ids: str, past: str) -> None:
        g = self.g
        new, total = self._steps(ids, past)
        rows, columns = g.op("Unsqueeze", new, g.ints(1)), g.op("Unsqueeze", total, g.ints(0))
        self.mask = g.op("GreaterOrEqual", rows, columns, name="mask")
        halves = [g.op("Gather", table, new) for table in self._tables(positions)]
        self.cos, self.sin = (g.op("Concat", half, half, axis=-1) for half in halves)

    def norm(self, x: str, name: str) -> str:
        g = self.g
        with g.scope(name):
            squares = g.op("Mul", x, x, name="squares")
            mean = g.op("ReduceMean", squares, g.ints(-1), keepdims=1)
            root = g.op("Sqrt", g.op("Add", mean, g.constant(_EPSILON)))
            weight = g.weight("weight", self.heads * self.size)
            return g.op("Mul", g.op("Div", x, root), weight)

    def attend(self, q: str, k: str, v: str, past: tuple[str, str]) -> Attention:
        g = self.g
        q = self._rotate(heads_of(g, q, self.heads, self.size))
        k = self._rotate(heads_of(g, k, self.groups, self.size))
        v = heads_of(g, v, self.groups, self.size)
        keys, values = (
            g.op("Concat", old, new, axis=2) for old, new in zip(past, (k, v), strict=True)
        )
        turned = g.op("Transpose", self._repeat(keys), perm=[0, 1, 3, 2])
        y = attend(g, q, turned, self._repeat(values), self.size, self.mask)
        return Attention(merge_heads(g, y, self.heads * self.size), (keys, values))

    def _rotate(self, x: str) -> str:
        g = self.g
        with g.scope("rotary"):
            low, high = g.ops(2, "Split", x, axis=-1, num_outputs=2)
            turned = g.op("Concat", g.op("Neg", high), low, axis=-1)
            return g.op("Add", g.op("Mul", x, self.cos), g.op("Mul", turned, self.sin))

    def _repeat(self, x: str) -> str:
        g = self.g
        with g.scope("repeat"):
            wide = g.ints(1, 1, self.heads // self.groups, 1, 1)
            y = g.op("Expand", g.op("Unsqueeze", x, g.ints(2)), wide)
            return g.op("Reshape", y, g.ints(0, self.heads, -1, self.size))


class Standard(Cached):
    """The operators of the standard, since opset 23."""

    opset = 23

    def _prepare(self, positions: int, ids: str, past: str) -> None:
        g = self.g
        new, total = self._steps(ids, past)
        rows, columns = g.op("Unsqueeze", new, g.ints(1)), g.op("Unsqueeze", total, g.ints(0))
        self.mask = g.op("GreaterOrEqual", rows, columns, name="mask")
        self.tables = self._tables(positions)
        row = g.op("Unsqueeze", new, g.ints(0))
        shape = g.op("Concat", self._size_of(ids, 0), self._size_of(ids, 1), axis=0)
        self.places = g.op("Expand", row, shape)

    def norm(self, x: str, name: str) -> str:
        with self.g.scope(name):
            weight = self.g.weight("weight", self.heads * self.size)
            return self.g.op("RMSNormalization", x, weight, axis=-1, epsilon=_EPSILON)

    def attend(self, q: str, k: str, v: str, past: tuple[str, str]) -> Attention:
        g = self.g
        q = self._rotate(heads_of(g, q, self.heads, self.size))
        k = self._rotate(heads_of(g, k, self.groups, self.size))
        v = heads_of(g, v, self.groups, self.size)
        y, keys, values = g.ops(3, "Attention", q, k, v, self.mask, *past)
        return Attention(merge_heads(g, y, self.heads * self.size), (keys, values))

    def _rotate(self, x: str) -> str:
        return self.g.op("RotaryEmbedding", x, *self.tables, self.places)


class Runtime(Cached):
    """ONNX Runtime's own operators, which include rotation and mask."""

    def _prepare(self, positions: int, ids: str, past: str) -> None:
        g = self.g
        self.tables = self._tables(positions)
        total = g.op("Add", self._size_of(past, 2), self._size_of(ids, 1))
        self.total = g.op("Cast", g.op("Squeeze", total, g.ints(0)), to=6)
        last = g.op("Sub", self.total, g.constant(1, "int32"))
        self.lengths = g.op("Expand", last, self._size_of(ids, 0))

    def norm(self, x: str, name: str) -> str:
        with self.g.scope(name):
            weight = self.g.weight("weight", self.heads * self.size)
            attributes = {"axis": -1, "epsilon": _EPSILON, "stash_type": 1}
            return self.g.op("SimplifiedLayerNormalization", x, weight, **attributes)

    def unpack(self, packed: str, *sizes: int) -> tuple[str, str, str]:
        """Return the packed result itself: the operator reads it."""
        return packed, "", ""

    def attend(self, q: str, k: str, v: str, past: tuple[str, str]) -> Attention:
        operands = (q, k, v, *past, self.lengths, self.total, *self.tables)
        heads = {"num_heads": self.heads, "kv_num_heads": self.groups, "do_rotary": 1}
        domain = {"domain": "com.microsoft"}
        y, keys, values = self.g.ops(3, "GroupQueryAttention", *operands, **heads, **domain)
        return Attention(y, (keys, values))
