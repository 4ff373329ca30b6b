"""Attention: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

MESHES = [(2,), (4,), (2, 2)]


def attention(
    heads: tuple[int, int] = (4, 2), *, batch: int = 2, past: int = 0, packed: bool = False,
    mask: tuple[int, ...] = (), kind: str = "float", results: int = 1, **attributes: Any,
) -> Case:  # fmt: skip
    """Return attention with 4 rows, 6 new keys, 8 elements per head of the key, 4 of the value."""
    sizes = {0: (heads[0], 4, 8), 1: (heads[1], 6, 8), 2: (heads[1], 6, 4)}
    made = [normal(batch, h, s, d, seed=i) for i, (h, s, d) in sizes.items()]
    if packed:
        made = [x.transpose(0, 2, 1, 3).reshape(batch, x.shape[2], -1) for x in made]
        attributes |= {"q_num_heads": heads[0], "kv_num_heads": heads[1]}
    masked = normal(*mask, seed=3) if mask else None
    if masked is not None and kind == "bool":
        masked = masked < 1
    cache = [normal(batch, heads[1], past, d, seed=d) if past else None for d in (8, 4)]
    operands = [*made, masked, *cache]
    return Case("Attention", operands, attributes, 24, results=(True,) * results)


def test_heads_split_in_query_key_value_and_cache() -> None:
    case = attention(past=5, mask=(4, 11), results=3)
    assert offered(case) == {
        "R R R R R R -> R R R",
        "S(0) S(0) S(0) R S(0) S(0) -> S(0) S(0) S(0)",
        "S(1) S(1) S(1) R S(1) S(1) -> S(1) S(1) S(1)",
        "S(2) R R S(0) R R -> S(2) R R",
    }


def test_packed_heads_split_as_wholes() -> None:
    case = attention(packed=True, past=3, results=3)
    assert "S(2) S(2) S(2) R S(1) S(1) -> S(2) S(1) S(1)" in offered(case)
    odd = attention(heads=(6, 3), packed=True)
    assert not any("S(2)" in text for text in offered(odd))


def test_rows_stay_whole_where_causality_counts_them() -> None:
    assert "S(2) R R R R R -> S(2)" in offered(attention())
    assert "S(2) R R R R R -> S(2)" not in offered(attention(is_causal=1))


def test_lengths_run_along_the_batch() -> None:
    case = attention()
    lengths = Case("Attention", [*case.operands, np.array([3, 6])], {}, 24)
    assert "S(0) S(0) S(0) R R R S(0) -> S(0)" in offered(lengths)


def test_heads_of_unknown_number_stay_whole() -> None:
    case = attention()
    hidden = Case("Attention", case.operands[:3], {}, 24, symbolic=frozenset({(1, 1)}))
    assert not any("S(1)" in text for text in offered(hidden))


@examples(40)
@given(
    mesh=st.sampled_from(MESHES),
    heads=st.sampled_from([(1, 1), (2, 2), (4, 1), (4, 2), (8, 4)]),
    packed=st.booleans(),
    past=st.sampled_from([0, 3]),
    mask=st.sampled_from([0, 2, 3, 4]),
    ones=st.tuples(st.booleans(), st.booleans()),
    kind=st.sampled_from(["float", "bool"]),
    results=st.sampled_from([1, 3, 4]),
    causal=st.booleans(),
    softcap=st.sampled_from([0.0, 5.0]),
)
def test_any_attention(
    mesh: tuple[int, ...], heads: tuple[int, int], packed: bool, past: int, mask: int,
    ones: tuple[bool, bool], kind: str, results: int, causal: bool, softcap: float,
) -> None:  # fmt: skip
    whole = (1 if ones[0] else 4, 1 if ones[1] else heads[0], 4, 6 + past)
    results = 3 if past and results == 1 else results
    case = attention(
        heads, batch=4, past=past, packed=packed, mask=whole[4 - mask :] if mask else (),
        kind=kind, results=results, is_causal=int(causal), softcap=softcap,
    )  # fmt: skip
    check(case, mesh)


def test_work_of_attention() -> None:
    report = check(attention(past=5, results=3), (2,))
    assert report.flops == 2 * 2 * 4 * 4 * 11 * (8 + 4)
    assert check(attention(packed=True), (2,)).flops == 2 * 2 * 4 * 4 * 6 * (8 + 4)


@pytest.mark.parametrize("mesh", MESHES)
def test_half_precision_attention(mesh: tuple[int, ...]) -> None:
    case = attention(past=3, results=3)
    halves = [None if x is None else x.astype(np.float16) for x in case.operands]
    check(Case("Attention", halves, {}, 24, results=(True,) * 3), mesh, rtol=1e-2, atol=5e-3)
