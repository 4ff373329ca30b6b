"""Attention in blocks of rows, built from plain operators.

Scores of all rows and keys are larger than query, key, value and result together if sequences are
long. A block has the scores of a few rows at a time. Results over different keys are joined by the
logarithms of their sums of exponentials (Milakov and Gimelshein, arXiv 1805.02867; Dao et al.,
arXiv 2205.14135). ONNX Runtime returns no such logarithm from its attention operators. It follows
from the scores and their softmax: ``max(scores) - log(max(softmax(scores)))``.

Queries are `... s d`, keys `... d t`, values `... t e`. Keys and values may have the size 1 in
dimensions that several heads of queries share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

from tensoropt.compiler.layout.sizes import Size
from tensoropt.dialects.build import (
    Build,
    element_type,
    int_attr,
    shape_of,
    sizes_of,
    tensor_type,
    wide_type,
)
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import BLOCKED_ATTENTION

__all__ = [
    "Attending",
    "Gradients",
    "Joining",
    "Part",
    "attend_long",
    "block_rows",
    "can_block",
    "cap_scores",
    "is_long",
    "mask_value",
    "positions",
    "usual_rows",
    "visible_keys",
]

_SHARE = 4
"""Scores of a block over query, key, value and result of a square attention, in elements."""

_MOST_BLOCKS = 32
"""Blocks of one attention at most: each is a few nodes of the graph."""


class Part(NamedTuple):
    """The attention of rows to some of the keys.

    ``y`` is the mean of the values by the softmax over these keys, and ``total`` the logarithm of
    the sum of the exponentials of the scores, one per row.
    """

    y: ir.Value
    total: ir.Value


class Gradients(NamedTuple):
    """The gradients of query, key and value, as sums in float32 or a wider type."""

    query: ir.Value
    key: ir.Value
    value: ir.Value


def is_long(rows: Size, keys: Size, sizes: int, *, causal: bool) -> bool:
    """Return whether the scores of an attention outweigh everything else that it reads or makes.

    ``sizes`` are the elements of a key and a value of one head. Query and key are then computed in
    blocks. Unknown sizes are not long, nor is a causal attention without halves to exchange.
    """
    if not isinstance(rows, int) or not isinstance(keys, int):
        return False
    has_halves = rows == keys and rows % 2 == 0
    return rows * keys > _SHARE * (rows + keys) * sizes and (has_halves or not causal)


def can_block(q: ir.Value, k: ir.Value, v: ir.Value, *, causal: bool) -> bool:
    """Return whether an attention has known sizes and is long."""
    shapes = [shape_of(x) for x in (q, k, v)]
    if any(None in shape for shape in shapes):
        return False
    (rows, size), (keys, value) = (sizes_of(x)[-2:] for x in (q, v))
    return is_long(rows, keys, size + value, causal=causal)


def attend_long(
    make: Build, q: ir.Value, k: ir.Value, v: ir.Value, mask: ir.Value | None = None, *,
    causal: bool,
) -> ir.Value:  # fmt: skip
    """Return a long attention of static sizes as one op, which a rank expands."""
    *lead, rows, _ = sizes_of(q)
    kinds = [
        tensor_type([*lead, rows, sizes_of(v)[-1]], element_type(q)),
        tensor_type([*lead, rows, 1], wide_type(element_type(q))),
    ]
    masks = [] if mask is None else [mask]
    attributes = {"causal": int_attr(int(causal))}
    return make.onnx_many(BLOCKED_ATTENTION, [q, k, v, *masks], kinds, **attributes)[0]


def block_rows(rows: int, sizes: int) -> int:
    """Return the rows of a block."""
    return min(rows, max(usual_rows(sizes), -(-rows // _MOST_BLOCKS)))


def usual_rows(sizes: int) -> int:
    """Return the rows of a block, unless it has all rows or there are too many blocks."""
    return 2 * _SHARE * sizes


def mask_value(like: ir.Value) -> float:
    """Return the bias of a hidden key's score, small enough that several can be added."""
    import ml_dtypes
    import numpy as np

    element = element_of(str(element_type(like)))
    assert element is not None
    narrow = element.name == "BFLOAT16"
    info = ml_dtypes.finfo(element.dtype) if narrow else np.finfo(element.dtype)
    return float(info.min) / 4


def positions(make: Build, count: int, rank: int = 1) -> ir.Value:
    """Return 0 to ``count`` - 1, int64, of shape (count, 1, ..., 1) with ``rank`` dimensions."""
    import numpy as np

    return make.constant(np.arange(count, dtype=np.int64).reshape(count, *[1] * (rank - 1)))


def visible_keys(
    make: Build, rows: int, keys: int, *, causal: bool, window: int = -1
) -> ir.Value | None:
    """Return bools (rows, keys) of the keys that each row sees, or ``None`` if it sees all.

    If ``causal``, a row sees no later key. It sees at most ``window`` earlier keys if that is not
    negative.
    """
    row, key, seen = positions(make, rows, 2), positions(make, keys), None
    if causal:
        seen = make.compare("LessOrEqual", key, row)
    if window >= 0:
        near = make.compare("GreaterOrEqual", key, make.sub(row, make.scalar(window, row)))
        seen = near if seen is None else make.binary("And", seen, near)
    return seen


def cap_scores(make: Build, scores: ir.Value, softcap: float) -> ir.Value:
    """Return ``scores`` bounded by ``softcap``, unless it is 0."""
    if not softcap:
        return scores
    return make.scaled(make.unary("Tanh", make.scaled(scores, 1.0 / softcap)), softcap)


@dataclass(frozen=True)
class Joining:
    """Builder of sums over parts of the keys, or over parts of the rows."""

    make: Build

    def joined(self, a: Part, b: Part) -> Part:
        """Return the attention of the same rows to the keys of both parts."""
        make = self.make
        more = make.sub(b.total, self.finite(a.total))
        y = make.add(a.y, make.mul(make.unary("Sigmoid", more), make.sub(b.y, a.y)))
        rest = make.unary("Softplus", make.unary("Neg", make.unary("Abs", more)))
        return Part(y, make.add(make.binary("Max", a.total, b.total), rest))

    def finite(self, total: ir.Value) -> ir.Value:
        """Return logarithms of sums without minus infinity; a hidden key has a finite score."""
        return total

    def added(self, a: Gradients, b: Gradients) -> Gradients:
        """Return the sums of gradients over the same rows and keys."""
        return Gradients(*(self.make.add(*pair) for pair in zip(a, b, strict=True)))


@dataclass(frozen=True)
class Attending(Joining):
    """Builder of attention; queries are scaled already. ``softcap`` bounds the scores if not 0.

    A ``mask`` has bools, true for visible keys, or terms of the scores. It broadcasts to scores.
    """

    softcap: float = 0.0

    key_dim: ClassVar[int] = -1
    """The dimension of keys along the sequence, from the end."""

    sends_ahead: ClassVar[bool] = False
    """Keys of the next turn would be in memory with the scores."""

    def all(self, q: ir.Value, k: ir.Value, v: ir.Value, mask: ir.Value | None = None) -> Part:
        """Return the attention to all keys, in blocks of rows."""
        bounds = self._bounds(q, v)
        return self._joined_rows(
            [self.block(self._rows(q, *ends), k, v, self._masked(mask, *ends)) for ends in bounds]
        )

    def causal(self, q: ir.Value, k: ir.Value, v: ir.Value) -> Part:
        """Return the attention to the keys at or before each row, in blocks of rows."""
        parts = []
        for start, stop in self._bounds(q, v):
            own = self._rows(q, start, stop)
            near = self._keys(k, v, start, stop)
            part = self.block(own, *near, self._visible(stop - start))
            if start:
                part = self.joined(self.block(own, *self._keys(k, v, 0, start)), part)
            parts.append(part)
        return self._joined_rows(parts)

    def block(self, q: ir.Value, k: ir.Value, v: ir.Value, mask: ir.Value | None = None) -> Part:
        """Return the attention to all keys, in one block."""
        make, scores = self.make, self._scores(q, k, mask)
        last = len(shape_of(scores)) - 1
        weights = make.unary("Softmax", scores)
        largest = self.make.wide(make.reduce("ReduceMax", scores, [last]))
        share = make.unary("Log", self.make.wide(make.reduce("ReduceMax", weights, [last])))
        y = make.matmul(make.cast(weights, element_type(v)), v)
        return Part(self.make.wide(y), make.sub(largest, share))

    def sees(self, part: Part, q: ir.Value) -> ir.Value:
        """Return bools of the rows of ``part`` that see any key, for queries like ``q``."""
        limit = self.make.scalar(mask_value(self._scored(q)) / 2, part.total)
        return self.make.compare("Greater", part.total, limit)

    def at_keys(self, mask: ir.Value, places: ir.Value) -> ir.Value:
        """Return the columns of a mask for the keys at ``places``."""
        if shape_of(mask)[-1] == 1:
            return mask
        return self.make.take(mask, places, len(shape_of(mask)) - 1)

    def all_gradients(
        self, q: ir.Value, k: ir.Value, v: ir.Value, rows: Sequence[ir.Value],
        mask: ir.Value | None = None,
    ) -> Gradients:  # fmt: skip
        """Return the gradients of attention to all keys, in blocks of rows.

        ``rows`` are the totals, the sums of result times gradient, and the gradient of the result.
        """
        queries, total = list[ir.Value](), None
        for ends in self._bounds(q, v):
            given = [self._rows(x, *ends) for x in rows]
            own = self._rows(q, *ends)
            part = self.block_gradients(own, k, v, given, self._masked(mask, *ends))
            queries.append(part.query)
            total = part if total is None else self._with_keys(total, part)
        assert total is not None
        return total._replace(query=self._concat_rows(queries))

    def causal_gradients(
        self, q: ir.Value, k: ir.Value, v: ir.Value, rows: Sequence[ir.Value]
    ) -> Gradients:
        """Return the gradients of attention to the keys at or before each row."""
        make, queries, total = self.make, list[ir.Value](), None
        for start, stop in self._bounds(q, v):
            own = self._rows(q, start, stop)
            given = [self._rows(x, start, stop) for x in rows]
            near = self._keys(k, v, start, stop)
            part = self.block_gradients(own, *near, given, self._visible(stop - start))
            if total is None:
                queries, total = [part.query], part
                continue
            far = self.block_gradients(own, *self._keys(k, v, 0, start), given)
            queries.append(make.add(far.query, part.query))
            # The earlier blocks see the keys before this block, and none of its own.
            total = self._with_keys(total, far)
            key = make.concat([total.key, part.key], len(shape_of(part.key)) - 1)
            total = Gradients(part.query, key, self._concat_rows([total.value, part.value]))
        assert total is not None
        return total._replace(query=self._concat_rows(queries))

    def block_gradients(
        self, q: ir.Value, k: ir.Value, v: ir.Value, rows: Sequence[ir.Value],
        mask: ir.Value | None = None,
    ) -> Gradients:  # fmt: skip
        """Return the gradients of attention to all keys, in one block."""
        make, own = self.make, element_type(v)
        total, delta, dy = rows
        weights = make.unary("Exp", make.sub(self.make.wide(self._scores(q, k, mask)), total))
        change = self.make.wide(make.matmul(dy, make.swapped(v)))
        slopes = make.mul(weights, make.sub(change, delta))
        narrow = make.cast(slopes, own)
        return Gradients(
            self.make.wide(make.matmul(narrow, make.swapped(k))),
            self._like(self.make.wide(make.matmul(make.swapped(q), narrow)), k),
            self._like(self.make.wide(make.matmul(make.swapped(make.cast(weights, own)), dy)), v),
        )

    def _with_keys(self, total: Gradients, part: Gradients) -> Gradients:
        """Return ``total`` plus the gradients of the same keys from other rows.

        The sum is made block by block, so that only one block's gradients are in memory with it.
        """
        key, value = self.make.add(total.key, part.key), self.make.add(total.value, part.value)
        return Gradients(total.query, key, value)

    def _concat_rows(self, parts: Sequence[ir.Value]) -> ir.Value:
        return self.make.concat(parts, len(shape_of(parts[0])) - 2)

    def _like(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """Return ``x`` summed over the dimensions in which ``like`` has the size 1."""
        sizes = zip(shape_of(x), shape_of(like), strict=True)
        dims = [d for d, (size, own) in enumerate(sizes) if own == 1 and size != 1]
        return self.make.reduce("ReduceSum", x, dims) if dims else x

    def _scores(self, q: ir.Value, k: ir.Value, mask: ir.Value | None) -> ir.Value:
        make = self.make
        scores = cap_scores(make, self._scored(make.matmul(q, k)), self.softcap)
        if mask is None:
            return scores
        if element_type(mask) == ir.IntegerType.get_signless(1):
            return make.where(mask, scores, make.scalar(mask_value(scores), scores))
        mask = make.cast(mask, element_type(scores))
        return make.add(scores, make.binary("Max", mask, make.scalar(mask_value(mask), mask)))

    def _scored(self, x: ir.Value) -> ir.Value:
        """Return ``x`` in the type of scores.

        ONNX Runtime adds the exponentials of float16 in float32. The softmax of bfloat16 has too
        few digits for the logarithm of a sum.
        """
        return self.make.wide(x) if isinstance(element_type(x), ir.BF16Type) else x

    def _visible(self, count: int) -> ir.Value | None:
        """Return bools (count, count) of the keys at or before the place of each row."""
        return visible_keys(self.make, count, count, causal=True)

    def _masked(self, mask: ir.Value | None, start: int, stop: int) -> ir.Value | None:
        """Return the rows of a mask; all rows may have the same mask."""
        rank = 0 if mask is None else len(shape_of(mask))
        if mask is None or rank < 2 or shape_of(mask)[-2] == 1:
            return mask
        return self._rows(mask, start, stop)

    def _bounds(self, q: ir.Value, v: ir.Value) -> list[tuple[int, int]]:
        """Return the first row of each block, and the row after it."""
        *_, rows, size = sizes_of(q)
        step = block_rows(rows, size + sizes_of(v)[-1])
        return list(pairwise([*range(0, rows, step), rows]))

    def _rows(self, x: ir.Value, start: int, stop: int) -> ir.Value:
        dim = len(shape_of(x)) - 2
        return x if (start, stop) == (0, shape_of(x)[dim]) else self.make.slice(x, dim, start, stop)

    def _keys(self, k: ir.Value, v: ir.Value, start: int, stop: int) -> tuple[ir.Value, ir.Value]:
        if (start, stop) == (0, shape_of(v)[-2]):
            return k, v
        return self.make.slice(k, len(shape_of(k)) - 1, start, stop), self._rows(v, start, stop)

    def _joined_rows(self, parts: Sequence[Part]) -> Part:
        return Part(*(self._concat_rows(side) for side in zip(*parts, strict=True)))
