"""Losses as operators, and recurrent networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional

from fuzz.gradients.draft import Draft, UnfitError, Value, maker

__all__: list[str] = []


@maker(1.5)
def cross_entropy(d: Draft) -> None:
    x = d.pick([2, 3, 4], lambda v: v.size > 0 and v.shape[1] > 1)
    how, weights, ignored = d.choice(["none", "mean", "sum"]), None, None
    labels = d.rng.integers(0, x.shape[1], [x.shape[0], *x.shape[2:]])
    if d.chance(0.3):
        ignored = d.choice([-1, 0])
        if ignored == -1:
            labels = np.where(d.rng.random(labels.shape) < 0.3, -1, labels)
        if (labels == ignored).all():
            raise UnfitError
    operands: list[Value | None] = [x, d.places(labels)]
    if d.chance(0.3):
        weights = d.leaf(d.literals, "c", d.rng.uniform(0.5, 1.5, x.shape[1]).astype(d.dtype))
        operands.append(weights)
    held: dict[str, Any] = {
        "reduction": how,
        **({} if ignored is None else {"ignore_index": ignored}),
    }
    at = torch.tensor(labels)
    skip = -100 if ignored is None else ignored

    def loss(x: Any, _: Any, w: Any = None) -> Any:
        return functional.nll_loss(x, at, w, ignore_index=skip, reduction=how)

    if d.chance(0.3):
        logs = d.add("LogSoftmax", [x], lambda x: x.log_softmax(1), {"axis": 1})
        d.add("NegativeLogLikelihoodLoss", [logs, *operands[1:]], loss, held)
        return
    there = (True, d.chance(0.5))

    def from_scores(x: Any, i: Any, w: Any = None) -> Any:
        logs = x.log_softmax(1)
        return loss(logs, i, w), logs

    d.add_many("SoftmaxCrossEntropyLoss", operands, from_scores, held, there=there)


@maker(0.7, narrow=True)
def recurrent(d: Draft) -> None:
    """One direction, forwards or backwards, or both."""
    kind = d.choice(["RNN", "GRU", "LSTM"])
    steps, batch, width, hidden = d.whole(1, 3), d.whole(1, 2), d.whole(1, 3), d.whole(1, 3)
    direction = d.choice(["forward", "reverse", "bidirectional"])
    ways, gates = 1 + (direction == "bidirectional"), {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    operands: list[Value | None] = [d.like([steps, batch, width])]
    operands += [d.like([ways, gates * hidden, width]), d.like([ways, gates * hidden, hidden])]
    operands += [d.like([ways, 2 * gates * hidden]) if d.chance(0.6) else None, None]
    states = 1 + (kind == "LSTM")
    operands += [d.like([ways, batch, hidden]) if d.chance(0.4) else None for _ in range(states)]
    linear = d.whole(0, 1)
    held: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    held |= {"linear_before_reset": linear} if kind == "GRU" else {}
    there = [d.chance(0.7) for _ in range(1 + states)]
    there[d.whole(0, states)] = True
    cell = {"RNN": _rnn, "GRU": _gru_linear if linear else _gru, "LSTM": _lstm}[kind]

    def run(x: Any, w: Any, r: Any, b: Any, _: Any, *first: Any) -> Any:
        b = x.new_zeros(ways, 2 * gates * hidden) if b is None else b
        given = [x.new_zeros(ways, batch, hidden) if s is None else s for s in first]
        every = [
            _unrolled(cell, x, w[i], r[i], b[i], [s[i] for s in given],
                      backwards=direction == "reverse" or i == 1)
            for i in range(ways)
        ]  # fmt: skip
        y = torch.stack([way[0] for way in every], 1)
        return [y, *(torch.stack([way[1][s] for way in every]) for s in range(states))]

    while operands[-1] is None:
        operands.pop()
    d.add_many(
        kind, operands,
        lambda *xs: run(*xs, *[None] * (5 + states - len(xs))), held, there=there,
    )  # fmt: skip


def _unrolled(
    cell: Any, x: Any, w: Any, r: Any, b: Any, states: list[Any], *, backwards: bool
) -> tuple[Any, list[Any]]:
    """Return the results of all steps and the last states."""
    found: dict[int, Any] = {}
    order = range(len(x))
    for step in reversed(order) if backwards else order:
        states = cell(x[step], w, r, *b.chunk(2), states)
        found[step] = states[0]
    return torch.stack([found[step] for step in order]), states


def _rnn(x: Any, w: Any, r: Any, wb: Any, rb: Any, states: list[Any]) -> list[Any]:
    return [torch.tanh(x @ w.T + wb + states[0] @ r.T + rb)]


def _lstm(x: Any, w: Any, r: Any, wb: Any, rb: Any, states: list[Any]) -> list[Any]:
    h, c = states
    i, o, f, g = (x @ w.T + wb + h @ r.T + rb).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return [o.sigmoid() * c.tanh(), c]


def _gru(x: Any, w: Any, r: Any, wb: Any, rb: Any, states: list[Any]) -> list[Any]:
    (h,) = states
    size = h.shape[-1]
    own, rest = x @ w.T + wb, h @ r[: 2 * size].T + rb[: 2 * size]
    z, reset = (own[:, : 2 * size] + rest).sigmoid().chunk(2, -1)
    new = torch.tanh(own[:, 2 * size :] + (reset * h) @ r[2 * size :].T + rb[2 * size :])
    return [(1 - z) * new + z * h]


def _gru_linear(x: Any, w: Any, r: Any, wb: Any, rb: Any, states: list[Any]) -> list[Any]:
    (h,) = states
    size = h.shape[-1]
    own, rest = x @ w.T + wb, h @ r.T + rb
    z, reset = (own + rest)[:, : 2 * size].sigmoid().chunk(2, -1)
    new = torch.tanh(own[:, 2 * size :] + reset * rest[:, 2 * size :])
    return [(1 - z) * new + z * h]
