"""Heads of attention as dimensions of their own.

Query heads that share a key and value head (arXiv 2305.13245) are a separate dimension after it,
along which key and value are broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.dialects.build import Build, int_attr, shape_of, sizes_of
from tensoropt.dialects.mlir import ir

__all__ = ["Heads", "grouped_bias", "heads_of", "local_heads", "rotated"]


@dataclass(frozen=True)
class Heads:
    """The number of key and value heads, and the number of query heads that share each."""

    shared: int
    each: int

    @property
    def queries(self) -> int:
        """The number of query heads."""
        return self.shared * self.each

    def packed_sizes(self, width: int) -> tuple[int, int, int]:
        """Return the sizes of query, key and value that are packed in ``width`` elements."""
        size = width // (self.queries + 2 * self.shared)
        return self.queries * size, self.shared * size, self.shared * size

    def query(self, make: Build, x: ir.Value) -> ir.Value:
        """Return `b h s d` or, grouped, `b k g s d`, from `b h s d` or packed `b s (h d)`."""
        shape = sizes_of(x)
        if len(shape) == 4:
            return (
                x if self.each == 1 else make.reshape(x, [shape[0], *self._query_dims, *shape[2:]])
            )
        batch, rows, width = shape
        size = width // self.queries
        x = make.reshape(x, [batch, rows, *self._query_dims, size])
        rank = 3 + len(self._query_dims)
        return make.transpose(x, [0, *range(2, rank - 1), 1, rank - 1])

    @property
    def _query_dims(self) -> list[int]:
        return [self.shared] if self.each == 1 else [self.shared, self.each]

    def key(self, make: Build, x: ir.Value, *, flip: bool) -> ir.Value:
        """Return `b h t d` (or `b h d t` with ``flip``), with a 1 after the heads if grouped."""
        x = self.unpack(make, x, flip=flip)
        return x if self.each == 1 else make.unsqueeze(x, [2])

    def unpack(self, make: Build, x: ir.Value, *, flip: bool = False) -> ir.Value:
        """Return `b h t d` (or `b h d t`) from the same, or from packed `b t (h d)`."""
        shape = sizes_of(x)
        if len(shape) == 4:
            return make.swapped(x) if flip else x
        batch, rows, width = shape
        x = make.reshape(x, [batch, rows, self.shared, width // self.shared])
        return make.transpose(x, [0, 2, 3, 1] if flip else [0, 2, 1, 3])

    def result(self, make: Build, y: ir.Value, *, packed: bool) -> ir.Value:
        """Return `b h s d` or packed `b s (h d)` from the result of attention."""
        shape = sizes_of(y)
        rank = len(shape)
        heads, (rows, size) = self.queries, shape[-2:]
        if not packed:
            return y if self.each == 1 else make.reshape(y, [shape[0], heads, rows, size])
        y = make.transpose(y, [0, rank - 2, *range(1, rank - 2), rank - 1])
        return make.reshape(y, [shape[0], rows, heads * size])


def heads_of(info: OpInfo) -> Heads:
    """Return the heads of an attention operator, from its shapes or, if packed, its attributes."""
    if info.rank(0) == 4:
        own, shared = (info.shape(index)[1] or 1 for index in range(2))
    else:
        own = int(info.attribute("num_heads") or info.attribute("q_num_heads"))
        shared = int(info.attribute("kv_num_heads", own))
    return Heads(shared, max(own // shared, 1))


def local_heads(local: LocalOp, heads: int, queries: int) -> Heads:
    """Return the heads of one rank, with padding; the arguments are the factors over both kinds."""
    return Heads(local.part(heads), heads_of(local.info).each // local.pieces(queries))


def grouped_bias(make: Build, heads: Heads, x: ir.Value) -> ir.Value:
    """Return ``x``, which broadcasts to `b h s t`, reshaped to broadcast to grouped scores."""
    shape = sizes_of(x)
    if heads.each == 1 or len(shape) <= 2:
        return x
    batch, (own, *rest) = shape[:-3], shape[-3:]
    if own == 1:
        return make.unsqueeze(x, [len(batch) + 1])
    return make.reshape(x, [*batch, heads.shared, heads.each, *rest])


def rotated(
    make: Build, x: ir.Value, count: int, positions: ir.Value, tables: Sequence[ir.Value], *,
    interleaved: bool,
) -> ir.Value:  # fmt: skip
    """Return ``count`` heads, packed `b s (h d)`, rotated by the angles of their positions.

    ``positions`` has a position for each row, or the first one only. ``tables`` are cosines and
    sines, possibly of only the first elements of a head.
    """
    turned = 2 * (shape_of(tables[0])[1] or 0)
    partial = {"rotary_embedding_dim": int_attr(turned), "num_heads": int_attr(count)}
    return make.onnx(
        "com.microsoft.RotaryEmbedding",
        [x, positions, *tables],
        x.type,
        interleaved=int_attr(int(interleaved)),
        **(partial if turned * count != shape_of(x)[2] else {}),
    )
