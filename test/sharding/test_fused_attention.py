"""Attention by a kernel of ours, and its gradient: every strategy is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sharding.attention_oracle import Operands, Oracle
from sharding.harness import Case, check, normal, offered

MESHES = [(2,), (4,), (2, 2)]
_BATCH, _ROWS, _SIZE, _VALUE = 4, 16, 2, 3


def cases(
    heads: int = 4, shared: int = 4, keys: int = _ROWS, bias: tuple[int, ...] = (), *,
    lengths: bool = False, offset: int = 0, **attributes: Any,
) -> tuple[Case, Case]:  # fmt: skip
    """Return an attention and its gradient."""
    operands = Operands(
        normal(_BATCH, heads, _ROWS, _SIZE, seed=1),
        normal(_BATCH, shared, keys, _SIZE, seed=2),
        normal(_BATCH, shared, keys, _VALUE, seed=3),
        normal(*bias, seed=4) if bias else None,
        np.array([keys, 3, 7, 1], np.int64) if lengths else None,
        np.array([offset], np.int64) if offset else None,
    )
    oracle = Oracle(0.7, **attributes)
    y, lse = (x.astype(np.float32) for x in oracle.forward(operands))
    dy = normal(*y.shape, seed=5)
    gradients = [x.astype(np.float32) for x in oracle.backward(operands, dy)]
    last = max(index for index, x in enumerate(operands) if x is not None)
    others, options = list(operands[3 : last + 1]), {"scale": 0.7, **attributes}
    forward = Case(
        "Attention", [*operands[:3], *others], options, 1, "tensoropt", results=(True, True),
        expected=(y, lse),
    )  # fmt: skip
    backward = Case(
        "AttentionGradient", [dy, *operands[:3], y, lse, *others], options, 1, "tensoropt",
        results=(True,) * len(gradients), expected=gradients,
    )  # fmt: skip
    return forward, backward


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("causal", [0, 1])
def test_every_strategy_is_right(mesh: tuple[int, ...], causal: int) -> None:
    for case in cases(causal=causal):
        check(case, mesh)


def test_batch_heads_rows_and_keys_are_split() -> None:
    forward, backward = cases(causal=1)
    assert offered(forward) == {
        "R R R -> R R",
        "S(0) S(0) S(0) -> S(0) S(0)",
        "S(1) S(1) S(1) -> S(1) S(1)",
        "S(2) R R -> S(2) S(2)",
        "R S(2) S(2) -> P(sum) R",
        "S(2) S(2) S(2) -> S(2) S(2)",
    }
    found = offered(backward)
    assert "S(2) S(2) R R S(2) S(2) -> S(2) P(sum) P(sum)" in found
    assert "R R S(2) S(2) R R -> P(sum) S(2) S(2)" in found
    assert "S(2) S(2) S(2) S(2) S(2) S(2) -> S(2) S(2) S(2)" in found


@pytest.mark.parametrize("shared", [1, 2])
def test_query_heads_of_one_key_head_are_split(shared: int) -> None:
    forward, backward = cases(shared=shared, causal=1)
    mesh = (2,) * shared
    assert any(text.startswith("S(1)") for text in offered(forward, mesh))
    found = check(backward, mesh).offered
    assert any("P(sum)" in text and text.startswith("S(1)") for text in found)


@pytest.mark.parametrize(
    "bias",
    [(1, 1, 1, _ROWS), (1, 4, _ROWS, _ROWS), (_BATCH, 1, 1, _ROWS), (_BATCH, 4, _ROWS, _ROWS)],
)
@pytest.mark.parametrize("shared", [2, 4])
def test_gradients_of_biases(bias: tuple[int, ...], shared: int) -> None:
    for case in cases(shared=shared, bias=bias):
        check(case, (2, 2))


@pytest.mark.parametrize(
    "attributes", [{"softcap": 1.5}, {"causal": 1, "window": 5}, {"causal": 1, "softcap": 2.0}]
)
def test_attributes(attributes: dict[str, Any]) -> None:
    for case in cases(**attributes):
        check(case, (4,))


def test_lengths_and_the_place_of_the_first_query() -> None:
    for case in cases(lengths=True):
        check(case, (2,))
    for case in cases(keys=24, offset=8, causal=1):
        check(case, (4,))


def test_work_of_hidden_keys_is_not_counted() -> None:
    (all_, backward), (half, _) = cases(), cases(causal=1)
    whole = 2 * _BATCH * 4 * _ROWS * _ROWS * (_SIZE + _VALUE)
    assert check(all_, (2,)).flops == whole
    assert check(half, (2,)).flops == whole / 2
    assert check(backward, (2,)).flops == whole * (3 * _SIZE + 2 * _VALUE) / (_SIZE + _VALUE)
