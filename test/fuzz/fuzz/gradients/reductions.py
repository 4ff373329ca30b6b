"""Reductions, sums along an axis, and the softmax family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch.nn import functional

from fuzz.gradients.draft import Draft, UnfitError, Value, away, distinct, maker

__all__: list[str] = []

_Reduce = Callable[[Any, list[int], bool], Any]


def _product(x: Any, dims: list[int], keep: bool) -> Any:
    for dim in sorted((d % x.ndim for d in dims), reverse=True):
        x = x.prod(dim, keepdim=keep)
    return x


_REDUCTIONS: dict[str, _Reduce] = {
    "ReduceSum": lambda x, dims, keep: x.sum(dims, keep),
    "ReduceMean": lambda x, dims, keep: x.mean(dims, keep),
    "ReduceMax": lambda x, dims, keep: x.amax(dims, keep),
    "ReduceMin": lambda x, dims, keep: x.amin(dims, keep),
    "ReduceProd": _product,
    "ReduceL1": lambda x, dims, keep: x.abs().sum(dims, keep),
    "ReduceL2": lambda x, dims, keep: x.square().sum(dims, keep).sqrt(),
    "ReduceSumSquare": lambda x, dims, keep: x.square().sum(dims, keep),
    "ReduceLogSum": lambda x, dims, keep: x.sum(dims, keep).log(),
    "ReduceLogSumExp": lambda x, dims, keep: x.logsumexp(dims, keep),
}
_OF_NONE = ("ReduceSum", "ReduceSumSquare", "ReduceL1")
_AS_THEY_ARE = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")


@maker(4)
def reduction(d: Draft) -> None:
    op_type, x = d.choice(list(_REDUCTIONS)), d.pick()
    if x.size == 0 and op_type not in _OF_NONE:
        raise UnfitError
    x = _fit(d, op_type, x)
    keep, kind = d.whole(0, 1), d.whole(0, 9)
    held: dict[str, int] = {} if keep and d.chance(0.5) else {"keepdims": keep}
    dims = list(range(x.rank))
    operands: list[Value] = [x]
    if kind == 0 and op_type in _AS_THEY_ARE:
        operands += [d.ints(np.empty(0))] if d.chance(0.5) else []
        d.add(op_type, operands, lambda x, *_: x.clone(), {**held, "noop_with_empty_axes": 1})
        return
    if kind == 1:
        operands.append(d.ints(np.empty(0)))
    elif kind > 2:
        dims = d.axes(x.rank, 1)
        if x.rank == 0:
            raise UnfitError
        operands.append(d.ints(dims))
    function = _REDUCTIONS[op_type]
    d.add(
        op_type,
        operands,
        lambda x, *_: function(x, dims, bool(keep)) if dims else function(x.reshape(1), [0], False),
        held,
    )


def _fit(d: Draft, op_type: str, x: Value) -> Value:
    """Return ``x``, or something near it that has no kinks where it is."""
    if op_type == "ReduceLogSum":
        return d.within(0.3, 3, x)
    if op_type in ("ReduceL1", "ReduceL2"):
        away(x.tensor, 0, by=1e-2)
    if op_type == "ReduceL2" and bool((x.tensor == 0).any()):
        raise UnfitError
    if op_type in ("ReduceMax", "ReduceMin"):
        held = x.tensor.reshape(-1).unique()
        distinct(held)
    return x


@maker(1)
def cumulative_sum(d: Draft) -> None:
    x = d.pick(range(1, 5))
    axis, exclusive, reverse = d.axis(x.rank), d.whole(0, 1), d.whole(0, 1)

    def summed(x: Any, _: Any) -> Any:
        y = x.flip(axis) if reverse else x
        y = y.cumsum(axis) - (y if exclusive else 0)
        return y.flip(axis) if reverse else y

    held = {"exclusive": exclusive, "reverse": reverse}
    at = d.ints(axis if d.chance(0.7) else [axis], np.int64 if d.chance(0.7) else np.int32)
    d.add("CumSum", [x, at], summed, held)


@maker(1.5)
def softmax(d: Draft) -> None:
    x, op_type = d.pick(range(1, 5)), d.choice(["Softmax", "LogSoftmax"])
    axis = d.axis(x.rank)
    if x.size == 0:
        raise UnfitError
    held = {} if axis == -1 and d.chance(0.5) else {"axis": axis}
    function = functional.softmax if op_type == "Softmax" else functional.log_softmax
    d.add(op_type, [x], lambda x: function(x, axis), held)


@maker(0.5)
def norm(d: Draft) -> None:
    x = d.pick(range(1, 5))
    if x.size == 0:
        raise UnfitError
    axis, order = d.axis(x.rank), d.whole(1, 2)
    x = d.within(0.2, 2, x)
    d.add(
        "LpNormalization", [x], lambda x: x / x.norm(order, axis, True),
        {"axis": axis, "p": order},
    )  # fmt: skip
