"""Rotary embeddings: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

from typing import Any

import numpy as np
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

MESHES = [(2,), (4,), (2, 2)]


def rotary(*shape: int, positions: bool = True, **attributes: Any) -> Case:
    """Return the rotation of (batch, heads, rows, 8) or (batch, rows, heads * 8)."""
    batch, rows = shape[0], shape[-2]
    half = attributes.get("rotary_embedding_dim", 8) // 2
    angles = normal(16, half) if positions else normal(batch, rows, half)
    ids = np.random.default_rng(0).integers(0, 16, (batch, rows)) if positions else None
    operands = [normal(*shape), np.cos(angles), np.sin(angles), ids]
    return Case("RotaryEmbedding", operands, attributes, 23)


def test_rotation_splits_batch_heads_and_rows() -> None:
    assert offered(rotary(2, 4, 6, 8)) == {
        "R R R R -> R",
        "S(0) R R S(0) -> S(0)",
        "S(1) R R R -> S(1)",
        "S(2) R R S(1) -> S(2)",
        "P(sum) R R R -> P(sum)",
    }
    without = offered(rotary(2, 4, 6, 8, positions=False))
    assert {"S(0) S(0) S(0) R -> S(0)", "S(2) S(1) S(1) R -> S(2)"} <= without


def test_packed_rotation_divides_its_heads() -> None:
    case = rotary(3, 6, 32, num_heads=4)
    assert "S(2) R R R -> S(2)" in offered(case)
    assert check(case, (4,)).flops == 3 * 3 * 6 * 32


@examples(25)
@given(
    mesh=st.sampled_from(MESHES),
    heads=st.sampled_from([1, 2, 4]),
    packed=st.booleans(),
    positions=st.booleans(),
    interleaved=st.booleans(),
    dim=st.sampled_from([8, 4]),
)
def test_any_rotation(
    mesh: tuple[int, ...], heads: int, packed: bool, positions: bool, interleaved: bool, dim: int
) -> None:
    attributes = {"interleaved": int(interleaved)}
    attributes |= {"rotary_embedding_dim": dim} if dim < 8 else {}
    attributes |= {"num_heads": heads} if packed or dim < 8 else {}
    shape = (4, 4, heads * 8) if packed else (4, heads, 4, 8)
    check(rotary(*shape, positions=positions, **attributes), mesh)


def of_runtime(*shape: int, first: bool = False, **attributes: Any) -> Case:
    """Return the runtime's rotation; ``first``: rows are counted from one position."""
    batch, rows = (shape[0], shape[-2])
    angles = normal(16, attributes.get("rotary_embedding_dim", 8) // 2)
    ids = np.array([5]) if first else np.random.default_rng(0).integers(0, 16, (batch, rows))
    operands = [normal(*shape), ids, np.cos(angles), np.sin(angles)]
    return Case("RotaryEmbedding", operands, attributes, 1, "com.microsoft")


def test_rows_counted_from_a_first_one_stay_whole() -> None:
    assert offered(of_runtime(2, 4, 16, first=True)) == {
        "R R R R -> R",
        "S(0) R R R -> S(0)",
        "S(2) R R R -> S(2)",
        "P(sum) R R R -> P(sum)",
    }
    assert "S(1) S(1) R R -> S(1)" in offered(of_runtime(2, 4, 16))


@examples(25)
@given(
    mesh=st.sampled_from(MESHES),
    heads=st.sampled_from([1, 2, 4]),
    packed=st.booleans(),
    first=st.booleans(),
    interleaved=st.booleans(),
    dim=st.sampled_from([8, 4]),
)
def test_any_rotation_of_the_runtime(
    mesh: tuple[int, ...], heads: int, packed: bool, first: bool, interleaved: bool, dim: int
) -> None:
    attributes = {"interleaved": int(interleaved)}
    if dim < 8:
        attributes |= {"rotary_embedding_dim": dim, "num_heads": heads}
    shape = (4, 4, heads * 8) if packed else (4, heads, 4, 8)
    check(of_runtime(*shape, first=first, **attributes), mesh)
