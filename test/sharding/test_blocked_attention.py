"""Attention of long sequences and its gradient: every strategy is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding.harness import Case, check, local_functions, memory_of, normal, offered

from tensoropt.runtime.layout.mesh import Mesh

MESHES = [(2,), (4,), (2, 2)]
_ROWS = 64
Arrays = tuple[NDArray[np.float64], ...]


def _attend(q: Arrays, mask: NDArray[np.float64]) -> Arrays:
    """Return softmax, result and totals of queries, keys and values."""
    query, key, value = q
    scores = query @ key + mask
    largest = scores.max(-1, keepdims=True)
    exponentials = np.exp(scores - largest)
    total = exponentials.sum(-1, keepdims=True)
    weights = exponentials / total
    return weights, weights @ value, largest + np.log(total)


def cases(
    lead: tuple[int, ...] = (2, 4), shared: tuple[int, ...] | None = None, *, keys: int = _ROWS,
    causal: bool = False, mask: tuple[int, ...] = (), kind: str = "float",
) -> tuple[Case, Case]:  # fmt: skip
    """Return an attention and its gradient; heads have 2 elements per key, 3 per value."""
    own = lead if shared is None else shared
    shapes = (*lead, _ROWS, 2), (*own, 2, keys), (*own, keys, 3)
    q, k, v = (normal(*shape, seed=i) for i, shape in enumerate(shapes))
    given = normal(*mask, seed=5) if mask else np.zeros((1, 1), np.float32)
    given = given < 1 if kind == "bool" else given
    terms = np.where(given, 0.0, -1e30) if kind == "bool" else given.astype(np.float64)
    if causal:
        terms = np.triu(np.full((_ROWS, _ROWS), -1e30), 1)
    wide = q.astype(np.float64), k.astype(np.float64), v.astype(np.float64)
    weights, y, total = _attend(wide, terms)
    dy = normal(*y.shape, seed=7)
    slopes = weights * (dy @ wide[2].swapaxes(-1, -2) - (dy * y).sum(-1, keepdims=True))
    dims = tuple(d for d, (a, b) in enumerate(zip(lead, own, strict=True)) if a != b)
    found = (
        slopes @ wide[1].swapaxes(-1, -2),
        (wide[0].swapaxes(-1, -2) @ slopes).sum(dims, keepdims=True),
        (weights.swapaxes(-1, -2) @ dy).sum(dims, keepdims=True),
    )
    y, total = y.astype(np.float32), total.astype(np.float32)
    masks, attributes = [given] if mask else [], {"causal": int(causal)}
    forward = Case(
        "BlockedAttention", [q, k, v, *masks], attributes, 1, "tensoropt", results=(True, True),
        expected=(y, total),
    )  # fmt: skip
    backward = Case(
        "BlockedAttentionGradient", [q, k, v, y, total, dy, *masks], attributes, 1, "tensoropt",
        results=(True,) * 3, expected=[x.astype(np.float32) for x in found],
    )  # fmt: skip
    return forward, backward


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("causal", [False, True])
def test_every_strategy_is_right(mesh: tuple[int, ...], causal: bool) -> None:
    forward, backward = cases(causal=causal)
    ring = ",".join(["S(2)"] * len(mesh)), ",".join(["S(3)"] * len(mesh))
    assert f"{ring[0]} {ring[1]} {ring[0]} -> {ring[0]} {ring[0]}" in offered(forward, mesh)
    found = check(backward, mesh, rtol=1e-3, atol=1e-4).offered
    split = f"{ring[0]} {ring[1]} {ring[0]}"
    assert f"{split} {ring[0]} {ring[0]} {ring[0]} -> {split}" in found


@pytest.mark.parametrize("causal", [False, True])
def test_shared_keys_have_partial_gradients(causal: bool) -> None:
    forward, backward = cases((2, 2, 2), (2, 2, 1), causal=causal)
    check(forward, (2, 2))
    found = check(backward, (2, 2), rtol=1e-3, atol=1e-4).offered
    texts = {text for text in found if "P(sum)" in text}
    assert "S(2),R R,R R,R S(2),R S(2),R S(2),R -> S(2),R P(sum),R P(sum),R" in texts


@pytest.mark.parametrize("mask", [(_ROWS, _ROWS), (2, 1, 1, _ROWS), (2, 4, _ROWS, _ROWS)])
@pytest.mark.parametrize("kind", ["float", "bool"])
def test_masks(mask: tuple[int, ...], kind: str) -> None:
    for case in cases(mask=mask, kind=kind):
        check(case, (4,), rtol=1e-3, atol=1e-4)


def test_keys_of_another_sequence_stay_whole() -> None:
    forward, backward = cases(keys=40)
    assert "S(2) R R -> S(2) S(2)" in offered(forward)
    assert (
        "S(2) R R S(2) S(2) S(2) -> S(2) P(sum) P(sum)"
        in check(backward, (2,), rtol=1e-3, atol=1e-4).offered
    )


@pytest.mark.parametrize("causal", [False, True])
def test_half_precision(causal: bool) -> None:
    for case in cases(causal=causal):
        halves = [
            x.astype(np.float16) if x is not None and x.dtype == np.float32 else x
            for x in case.operands
        ]
        expected = [x.astype(np.float16) for x in case.expected]
        if case.op_type == "BlockedAttention":
            expected[1] = case.expected[1]
        else:
            halves[4] = case.operands[4]
        held = replace(case, operands=halves, expected=expected)
        check(held, (4,), rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize("causal", [False, True])
def test_all_messages_are_priced(causal: bool) -> None:
    for case in cases(causal=causal):
        report, mesh = check(case, (4,), rtol=1e-3, atol=1e-4), Mesh((4,))
        for strategy, text in zip(report.tried, local_functions(case, (4,)), strict=True):
            kinds = [kind for kind, *_ in report.rule.inner_steps(strategy, mesh)]
            assert kinds.count("collective_permute") == text.count("topt.collective_permute")
            assert report.rule.inner_bytes(strategy, mesh) > 0


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_memory_is_that_of_live_tensors(ranks: int, causal: bool, dtype: type) -> None:
    rows, size, heads = 2048, 32, 4
    q, k = np.zeros((heads, rows, size), dtype), np.zeros((1, size, rows), dtype)
    v, totals = np.zeros((1, rows, size), dtype), np.zeros((heads, rows, 1), np.float32)
    attributes = {"causal": int(causal)}
    for kind, operands, results in (
        ("BlockedAttention", [q, k, v], [q, totals]),
        ("BlockedAttentionGradient", [q, k, v, q, totals, q], [q, k, v]),
    ):
        made = (True,) * len(results)
        case = Case(kind, operands, attributes, 1, "tensoropt", results=made, expected=results)
        for predicted, live in memory_of(case, ranks, factor=1):
            assert predicted == pytest.approx(live, rel=0.1)
