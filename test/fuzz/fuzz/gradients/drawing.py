"""A whole graph of a seed: nodes of all families, and a loss of what they make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fuzz.gradients import (  # noqa: F401
    elementwise,
    flow,
    indexing,
    losses,
    movement,
    normalisations,
    products,
    reductions,
    windows,
)
from fuzz.gradients.draft import MAKERS, Draft, UnfitError, Value
from fuzz.gradients.graph import Graph, gradients, trainable

__all__ = ["live", "random_graph"]

OPSETS = (20, 21, 22, 23)
_ATTEMPTS = 60


def random_graph(seed: int, most_nodes: int = 9) -> Graph:
    """Return the graph of a seed, always the same."""
    rng = np.random.default_rng(seed)
    while True:
        dtype = "float64" if rng.random() < 0.4 else "float32"
        draft = Draft(rng, int(rng.choice(OPSETS)), dtype)
        _grow(draft, draft.whole(1, most_nodes))
        try:
            graph = _with_loss(draft)
        except UnfitError:
            continue
        found = gradients(graph, torch.float64)[1]
        if any(found[name].any() for name in trainable(graph)):
            return graph


def _grow(d: Draft, nodes: int) -> None:
    for _ in range(d.whole(1, 2)):
        d.weight(d.shape(d.whole(1, 4)))
    d.data(d.shape(d.whole(0, 4)))
    fits = [m for m in MAKERS if d.opset >= m[2] and not (m[3] and d.dtype == "float64")]
    chances = np.array([m[1] for m in fits])
    for _ in range(_ATTEMPTS):
        if len(d.nodes) >= nodes:
            return
        mark = d.mark()
        try:
            fits[int(d.rng.choice(len(fits), p=chances / chances.sum()))][0](d)
        except (UnfitError, RuntimeError, IndexError):  # what PyTorch says of shapes
            d.reset(mark)


def _with_loss(d: Draft) -> Graph:
    ends = [v for v in d.floats() if v.name not in d.used and v.name not in d.weights]
    ends = [v for v in ends if v.name not in d.inputs]
    if not ends:
        raise UnfitError
    inner = [v.name for v in d.floats() if v.name not in d.weights and v.name not in d.inputs]
    kind, value = d.choice(["output", "output", "output", "mse", "softmax-cross-entropy"]), ends[-1]
    if kind == "output" or value.size == 0 or (kind != "mse" and value.rank == 0):
        kind, value = "output", _sum_of(d, ends)
    outputs = [n for n in inner if d.chance(0.1) and n != value.name]
    loss = f"{kind}:{value.name}"
    if kind != "output":
        loss += ",labels"
        d.inputs["labels"] = _labels(d, kind, value)
    return live(d.graph(loss, outputs))


def _labels(d: Draft, kind: str, value: Value) -> np.ndarray:
    if kind == "mse":
        return np.asarray(d.rng.standard_normal(value.shape)).astype(d.dtype)
    return np.asarray(d.rng.integers(0, value.shape[-1], value.shape[:-1]), np.int64)


def _sum_of(d: Draft, ends: list[Value]) -> Value:
    """Return the sum of all elements of ``ends``, weighed by random numbers, as one number."""
    terms = [_weighed(d, value) for value in ends]
    total = terms[0]
    if len(terms) > 1:
        total = d.add("Sum", terms, lambda *xs: sum(xs))
    if d.chance(0.2):
        total = d.add("Unsqueeze", [total, d.ints([0])], lambda x, _: x.unsqueeze(0))
    return total


def _weighed(d: Draft, value: Value) -> Value:
    """Return the sum of the elements times random ones; those of one shape share them."""
    if d.chance(0.3):
        share = d.like(value.shape)
    else:
        share = d.leaf(d.literals, "c", d.rng.uniform(-1, 1, value.shape).astype(d.dtype))
    product = d.add("Mul", [value, share], lambda x, c: x * c)
    if not value.rank:
        return product
    return d.add("ReduceSum", [product], lambda x: x.sum(), {"keepdims": 0})


def live(graph: Graph) -> Graph:
    """Return the graph without what neither its loss nor its outputs depend on."""
    needed, kept = {graph.result, *graph.outputs}, []
    for node in reversed(graph.nodes):
        if needed.intersection(node.results):
            kept.append(node)
            needed.update(name for name in node.reads if name)
    needed.add(graph.labels)
    tables = {
        key: {n: a for n, a in getattr(graph, key).items() if n in needed}
        for key in ("inputs", "weights", "literals")
    }
    return replace(graph, nodes=tuple(kept[::-1]), **tables)
