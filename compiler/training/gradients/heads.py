"""Attention built from differentiable operators: splitting of heads, masked scores, softmax, sums.

Vaswani et al. (arXiv 1706.03762), section 3.2. Every operator splits along batch, heads and rows of
the query. Query heads that share a key and value head (arXiv 2305.13245) are a separate dimension
after it, along which key and value are broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.dialects.build import Build, element_type, shape_of, sizes_of
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir

__all__ = [
    "Heads",
    "add_present",
    "any_along_last",
    "attend",
    "boolean_bias",
    "grouped_bias",
    "mask_value",
    "positions",
    "visible_keys",
]


@dataclass(frozen=True)
class Heads:
    """The number of key and value heads, and the number of query heads that share each."""

    shared: int
    each: int

    def query(self, make: Build, x: ir.Value) -> ir.Value:
        """Return `b h s d` or, grouped, `b k g s d`, from `b h s d` or packed `b s (h d)`."""
        shape = sizes_of(x)
        if len(shape) == 4:
            return (
                x if self.each == 1 else make.reshape(x, [shape[0], *self._query_dims, *shape[2:]])
            )
        batch, rows, width = shape
        size = width // (self.shared * self.each)
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
        heads, (rows, size) = self.shared * self.each, shape[-2:]
        if not packed:
            return y if self.each == 1 else make.reshape(y, [shape[0], heads, rows, size])
        y = make.transpose(y, [0, rank - 2, *range(1, rank - 2), rank - 1])
        return make.reshape(y, [shape[0], rows, heads * size])


def attend(
    make: Build,
    q: ir.Value,
    k: ir.Value,
    *,
    scale: float,
    softcap: float = 0.0,
    bias: ir.Value | None = None,
    softmax: ir.Type | None = None,
) -> tuple[ir.Value, ...]:
    """Return the raw, capped and masked scores, and their softmax over the keys.

    ``q`` and ``k`` come from :class:`Heads`, ``k`` flipped. ``bias`` is added to the scores;
    ``softmax`` is the element type of the softmax.
    """
    raw = make.matmul(q if scale == 1.0 else make.scaled(q, scale), k)
    capped = raw
    if softcap:
        capped = make.scaled(make.unary("Tanh", make.scaled(raw, 1.0 / softcap)), softcap)
    masked = capped if bias is None else make.add(capped, bias)
    own = element_type(masked)
    wide = masked if softmax is None else make.cast(masked, softmax)
    weights = make.cast(make.unary("Softmax", wide), own)
    return raw, capped, masked, weights


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


def boolean_bias(
    make: Build, seen: ir.Value, like: ir.Value, hidden: float | None = None
) -> ir.Value:
    """Return 0 where ``seen`` is true and ``hidden`` elsewhere, in the element type of ``like``."""
    hidden = mask_value(like) if hidden is None else hidden
    return make.where(seen, make.scalar(0.0, like), make.scalar(hidden, like))


def grouped_bias(make: Build, heads: Heads, x: ir.Value) -> ir.Value:
    """Return ``x``, which broadcasts to `b h s t`, reshaped to broadcast to grouped scores."""
    shape = sizes_of(x)
    if heads.each == 1 or len(shape) <= 2:
        return x
    batch, (own, *rest) = shape[:-3], shape[-3:]
    if own == 1:
        return make.unsqueeze(x, [len(batch) + 1])
    return make.reshape(x, [*batch, heads.shared, heads.each, *rest])


def add_present(make: Build, biases: Sequence[ir.Value | None]) -> ir.Value | None:
    """Return the sum of the biases that are present, or ``None`` without any."""
    summed = None
    for bias in (bias for bias in biases if bias is not None):
        summed = bias if summed is None else make.add(summed, bias)
    return summed


def any_along_last(make: Build, seen: ir.Value) -> ir.Value:
    """Return whether any bool along the last dimension is true; the dimension becomes 1."""
    ones = make.cast(seen, ir.F32Type.get())
    most = make.reduce("ReduceMax", ones, [len(shape_of(ones)) - 1])
    return make.compare("Greater", most, make.scalar(0.0, most))
