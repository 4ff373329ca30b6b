"""Gathering and scattering by index, and values that come with indices."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import torch

from fuzz.gradients.draft import Draft, UnfitError, Value, away, distinct, maker

__all__: list[str] = []


def _negative(d: Draft, places: Any, size: int) -> Any:
    """Return indices of which some are counted from the end."""
    flags = d.rng.random(np.shape(places)) < (0.3 if d.chance(0.5) else 0)
    return np.where(flags, np.asarray(places) - size, places)


@maker(2)
def gather(d: Draft) -> None:
    x = d.pick(range(1, 5))
    axis = d.axis(x.rank)
    size, shape = x.shape[axis], d.shape(d.whole(0, 2))
    if size == 0:
        raise UnfitError
    places = d.rng.integers(0, size, shape)
    held = torch.tensor(places)

    def taken(x: Any, _: Any) -> Any:
        at = axis % x.ndim
        y = x.index_select(at, held.reshape(-1))
        return y.reshape([*x.shape[:at], *held.shape, *x.shape[at + 1 :]])

    attributes = {} if axis == 0 and d.chance(0.5) else {"axis": axis}
    d.add("Gather", [x, d.places(_negative(d, places, size))], taken, attributes)


@maker(0.5)
def gather_at_maximum(d: Draft) -> None:
    """At indices that are computed of the values."""
    x = d.pick(range(1, 4), lambda v: v.size > 0)
    axis, keep = d.axis(x.rank), 1
    _separate(x, axis)
    op_type = d.choice(["ArgMax", "ArgMin"])
    function = torch.argmax if op_type == "ArgMax" else torch.argmin
    held = {"axis": axis, "keepdims": keep}
    at = d.add(op_type, [x], lambda x: function(x, axis, True), held)
    y = d.like(x.shape)
    d.add("GatherElements", [y, at], lambda y, i: y.gather(axis, i), {"axis": axis})


def _separate(x: Value, axis: int, by: float = 1e-3) -> None:
    """Raise `UnfitError` where two elements along ``axis`` are close."""
    if x.shape[axis] > 1 and bool((x.tensor.sort(axis).values.diff(dim=axis) < by).any()):
        raise UnfitError


@maker(1)
def gather_elements(d: Draft) -> None:
    x = d.pick(range(1, 5))
    axis = d.axis(x.rank)
    shape = [d.whole(1, n) if d.chance(0.3) else n for n in x.shape]
    shape[axis] = d.size()
    if x.size == 0:
        raise UnfitError
    places = d.rng.integers(0, x.shape[axis], shape)
    held = torch.tensor(places)
    given = d.places(_negative(d, places, x.shape[axis]))
    d.add("GatherElements", [x, given], lambda x, _: x.gather(axis, held), {"axis": axis})


@maker(1)
def gather_nd(d: Draft) -> None:
    x = d.pick(range(1, 5), lambda v: v.size > 0)
    batch = d.whole(0, x.rank - 1) if d.chance(0.4) else 0
    depth = d.whole(1, x.rank - batch)
    outer = [*x.shape[:batch], *d.shape(d.whole(0, 2) if batch == 0 else d.whole(0, 1))]
    sizes = x.shape[batch : batch + depth]
    places = np.stack([d.rng.integers(0, n, outer) for n in sizes], -1)

    def taken(x: Any, _: Any) -> Any:
        index = torch.tensor(places)
        first = [
            torch.arange(n).reshape([-1 if i == j else 1 for j in range(len(outer))])
            for i, n in enumerate(outer[:batch])
        ]
        return x[tuple([*first, *index.unbind(-1)])]

    signed = np.stack([_negative(d, places[..., i], n) for i, n in enumerate(sizes)], -1)
    held = {"batch_dims": batch} if batch or d.chance(0.3) else {}
    d.add("GatherND", [x, d.ints(signed)], taken, held)


@maker(1)
def scatter_elements(d: Draft) -> None:
    x = d.pick(range(1, 5), lambda v: v.size > 0)
    axis, adds = d.axis(x.rank), d.chance(0.5)
    shape = [d.whole(1, n) if d.chance(0.3) else n for n in x.shape]
    size = x.shape[axis]
    if adds:
        shape[axis] = d.whole(1, 4)
        places = d.rng.integers(0, size, shape)
    else:
        shape[axis] = d.whole(1, size)
        rows = d.rng.random([*shape[: axis % x.rank], size, *shape[axis % x.rank + 1 :]])
        places = np.take(rows.argsort(axis), range(shape[axis]), axis)
    held = {"axis": axis, **({"reduction": "add"} if adds else {})}
    index = torch.tensor(places)

    def put(x: Any, _: Any, updates: Any) -> Any:
        own = x.scatter_add if adds else x.scatter
        return own(axis, index, updates)

    d.add("ScatterElements", [x, d.places(_negative(d, places, size)), d.like(shape)], put, held)


@maker(1)
def scatter_nd(d: Draft) -> None:
    x = d.pick(range(1, 5), lambda v: v.size > 0)
    depth, adds = d.whole(1, x.rank), d.chance(0.5)
    sizes = x.shape[:depth]
    every = list(itertools.product(*map(range, sizes)))
    count = d.whole(1, min(4, len(every)) if not adds else 4)
    picks = d.rng.choice(len(every), count, replace=adds)
    places = np.array([every[int(i)] for i in picks], np.int64)
    updates = d.like([count, *x.shape[depth:]])
    held = {"reduction": "add"} if adds else {}

    def put(x: Any, _: Any, updates: Any) -> Any:
        return x.index_put(tuple(torch.tensor(places).unbind(-1)), updates, accumulate=adds)

    signed = np.stack([_negative(d, places[:, i], n) for i, n in enumerate(sizes)], -1)
    d.add("ScatterND", [x, d.ints(signed), updates], put, held)


@maker(1)
def top_k(d: Draft) -> None:
    x = d.pick(range(1, 5), lambda v: v.size > 0)
    axis = d.axis(x.rank)
    _separate(x, axis)
    count, largest = d.whole(1, x.shape[axis]), d.whole(0, 1)
    held = {"axis": axis, "largest": largest}
    found = d.add_many(
        "TopK", [x, d.ints([count])], lambda x, _: x.topk(count, axis, bool(largest)), held,
        there=(True, True),
    )  # fmt: skip
    if d.chance(0.5):
        y = d.like(x.shape)
        d.add("GatherElements", [y, found[1]], lambda y, i: y.gather(axis, i), {"axis": axis})


@maker(0.5, narrow=True)
def one_hot(d: Draft) -> None:
    places, depth = d.rng.integers(0, 4, d.shape(d.whole(1, 2))), 4
    axis = d.whole(-1, places.ndim)
    values = d.add("Neg", [d.like([2])], torch.neg)  # weights themselves would be settings

    def flags(i: Any, _: Any, values: Any) -> Any:
        hot = torch.nn.functional.one_hot(i.long() % depth, depth).to(values.dtype)
        y = values[0] + hot * (values[1] - values[0])
        return y.movedim(-1, axis)

    given = d.ints(_negative(d, places, depth))
    d.add("OneHot", [given, d.ints(depth), values], flags, {"axis": axis})


@maker(0.4)
def share_of_size(d: Draft) -> None:
    """A value over the size of another."""
    x = d.pick()
    if x.size == 0:
        raise UnfitError
    size = d.add("Size", [x], lambda x: torch.tensor(x.numel()))
    held = {"to": 1 if d.dtype == "float32" else 11}
    wide = d.add("Cast", [size], lambda n, x: n.to(x.dtype), held, captured=[x])
    share = d.add("Reciprocal", [wide], torch.reciprocal)
    d.add("Mul", [d.pick(), share], torch.mul)


@maker(0.4)
def maximum_of_pool_places(d: Draft) -> None:
    """MaxPool gives places in the whole tensor; of one image in one channel they index it."""
    shape = [1, 1, d.whole(3, 6), d.whole(3, 6)]
    x = d.like(shape)
    distinct(x.tensor)
    y, at = d.add_many(
        "MaxPool", [x],
        lambda x: torch.nn.functional.max_pool2d(x, 2, 1, return_indices=True),
        {"kernel_shape": [2, 2]}, there=(True, True),
    )  # fmt: skip
    source = d.like([math.prod(shape)])
    d.add("Gather", [source, at], lambda s, i: s[i])
    away(y.tensor)
