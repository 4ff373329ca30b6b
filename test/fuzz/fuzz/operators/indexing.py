"""Operators that read and write by indices."""

from __future__ import annotations

import numpy as np

from fuzz.builder import Array, Builder, UnsuitableError, Value
from fuzz.operators.registry import maker


def indices(b: Builder, size: int, shape: tuple[int, ...], *, negative: bool = True) -> Array:
    """Return indices into a dimension, some counted from the end."""
    if not size:
        raise UnsuitableError("nothing to choose from")
    return b.rng.integers(-size if negative and b.flip() else 0, size, shape)


def held(b: Builder, array: Array, kind: str = "int64") -> Value:
    """Return indices as a constant, or as an input of the graph."""
    if b.flip(0.6) or array.size == 0:
        return b.constant(array.astype(kind))
    value = b.input(array.shape, kind)
    value.array[...] = array
    return value


def _shape(b: Builder) -> tuple[int, ...]:
    return tuple(b.size() for _ in range(b.integer(0, 2)))


@maker(3.5)
def gather(b: Builder) -> None:
    x = b.pick(lambda v: v.rank > 0)
    axis = b.axis(x.rank)
    places = indices(b, x.shape[axis], _shape(b))
    kind = b.choose(("int64", "int32"))
    b.add("Gather", x, held(b, places, kind), axis=None if axis == 0 else axis, exact="move")


@maker(1.0)
def gather_by_value(b: Builder) -> None:
    x = b.pick(lambda v: v.rank > 0)
    axis = b.axis(x.rank)
    size = x.shape[axis]
    places = b.pick(
        lambda v: v.dtype in ("int64", "int32") and (not v.array.size or size)
        and bool(((v.array >= -size) & (v.array < size)).all())
    )  # fmt: skip
    b.add("Gather", x, places, axis=axis, exact="move")


@maker(1.5)
def gather_elements(b: Builder) -> None:
    x = b.pick(lambda v: v.rank > 0)
    axis = b.axis(x.rank)
    shape = tuple(b.integer(1, n) if n else 0 for n in x.shape)
    places = indices(b, x.shape[axis], shape)
    b.add("GatherElements", x, held(b, places), axis=axis, exact="move")


@maker(1.0)
def gather_nd(b: Builder) -> None:
    x = b.pick(lambda v: v.rank > 1)
    batch = b.integer(0, 1)
    depth = b.integer(1, x.rank - batch)
    lead = (*x.shape[:batch], *_shape(b))
    if not lead:
        lead = (b.size(),)
    parts = [indices(b, x.shape[batch + i], (*lead, 1)) for i in range(depth)]
    places = held(b, np.concatenate(parts, axis=-1))
    b.add("GatherND", x, places, batch_dims=batch or None, exact="move")


@maker(1.5)
def scatter_elements(b: Builder) -> None:
    x = b.float(least=1) if b.flip() else b.pick(lambda v: v.rank > 0 and v.dtype != "bool")
    axis = b.axis(x.rank)
    reduction = b.choose((None, "none", *(("add",) if b.opset >= 16 else ()),
                          *(("max", "min") if b.opset >= 18 else ())))  # fmt: skip
    shape = list(n if b.flip(0.7) else b.integer(0, n) for n in x.shape)
    size = x.shape[axis]
    count = shape[axis] = b.integer(0, size)
    order = b.rng.permutation(size)[:count]  # no place twice, whose order is not said
    lined = [count if i == axis % x.rank else 1 for i in range(x.rank)]
    places = np.broadcast_to(order.reshape(lined), shape).copy()
    updates = b.weight(shape, x.dtype, x.bits is not None)
    exact = "linear" if reduction == "add" else "move"
    b.add("ScatterElements", x, held(b, places), updates, axis=axis, reduction=reduction,
          exact=exact)  # fmt: skip


@maker(1.5)
def scatter_nd(b: Builder) -> None:
    x = b.pick(lambda v: v.rank > 0 and v.dtype != "bool")
    depth = b.integer(1, x.rank)
    reduction = b.choose((None, "none", *(("add",) if b.opset >= 16 else ()),
                          *(("max", "min") if b.opset >= 18 else ())))  # fmt: skip
    every = np.stack(
        np.meshgrid(*(np.arange(n) for n in x.shape[:depth]), indexing="ij"), -1
    ).reshape(-1, depth)
    places = b.rng.permutation(every)[: b.integer(0, len(every))]
    updates = b.weight((len(places), *x.shape[depth:]), x.dtype, x.bits is not None)
    exact = "linear" if reduction == "add" else "move"
    b.add("ScatterND", x, held(b, places), updates, reduction=reduction, exact=exact)


@maker(1.0)
def one_hot(b: Builder) -> None:
    depth = b.integer(1, 6)
    places = b.pick(lambda v: v.dtype in ("int64", "int32", "float32") and v.rank < 4)
    kind = b.choose(("int64", "float32", "int32"))
    values = b.numbers_of([0, 1] if b.flip() else [2, 5], kind)
    size = b.numbers_of(depth if b.flip() else [depth], "int64")
    axis = b.integer(-places.rank - 1, places.rank) if b.flip(0.7) else None
    b.add("OneHot", places, size, values, axis=axis, exact="jump")


@maker(0.5)
def compress(b: Builder) -> None:
    x = b.pick()
    axis = b.axis(x.rank) if x.rank and b.flip(0.7) else None
    size = x.array.size if axis is None else x.shape[axis]
    kept = b.numbers((b.integer(0, size),), "bool", exact=True)
    b.add("Compress", x, held(b, kept, "bool"), axis=axis, exact="move")


@maker(0.4)
def eye(b: Builder) -> None:
    x = b.pick(lambda v: v.rank == 2)
    b.add("EyeLike", x, k=b.integer(-1, 1), dtype=b.choose((1, 7)))
