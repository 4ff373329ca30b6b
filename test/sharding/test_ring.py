"""Attention over long sequences that are split: every strategy is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sharding.harness import Case, check, local_functions, normal, offered

from tensoropt.runtime.layout.mesh import Mesh

MESHES = [(2,), (4,), (2, 2), (8,)]
_ROWS = 48


def attention(
    heads: tuple[int, int] = (4, 2), *, packed: bool = False, mask: tuple[int, ...] = (),
    kind: str = "float", rows: int = _ROWS, keys: int = _ROWS, **attributes: Any,
) -> Case:  # fmt: skip
    """Return long attention: heads have 2 elements per key, 3 per value."""
    sizes = {0: (heads[0], rows, 2), 1: (heads[1], keys, 2), 2: (heads[1], keys, 3)}
    made = [2 * normal(1, h, s, d, seed=i) for i, (h, s, d) in sizes.items()]
    if packed:
        made = [x.transpose(0, 2, 1, 3).reshape(1, x.shape[2], -1) for x in made]
        attributes |= {"q_num_heads": heads[0], "kv_num_heads": heads[1]}
    masked = normal(*mask, seed=3) if mask else None
    if masked is not None and kind == "bool":
        masked = masked < 1
    return Case("Attention", [*made, masked] if mask else made, attributes, 24)


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
def test_keys_travel_in_a_ring(mesh: tuple[int, ...], causal: int, packed: bool) -> None:
    rows = 64 if causal and mesh == (8,) else _ROWS
    case = attention(packed=packed, is_causal=causal, softcap=5.0, scale=0.7, rows=rows, keys=rows)
    place = "S(1)" if packed else "S(2)"
    whole = ",".join([place] * len(mesh))
    assert f"{whole} {whole} {whole} -> {whole}" in offered(case, mesh)


@pytest.mark.parametrize("mask", [(_ROWS, _ROWS), (4, _ROWS, _ROWS), (1, 4, _ROWS, _ROWS)])
@pytest.mark.parametrize("kind", ["float", "bool"])
def test_masks_follow_the_keys(mask: tuple[int, ...], kind: str) -> None:
    case = attention(mask=mask, kind=kind)
    for mesh in ((2,), (4,)):
        found = offered(case, mesh)
        assert any(text.startswith("S(2) S(2) S(2)") for text in found)


def test_rows_without_a_visible_key_are_zero() -> None:
    case = attention(mask=(_ROWS, _ROWS), kind="bool")
    mask = np.array(case.operands[3])
    mask[3], mask[20, :24] = False, False
    check(Case("Attention", [*case.operands[:3], mask], {}, 24), (2,))
    for dtype, tolerance in ((np.float32, 1e-4), (np.float16, 1e-2)):
        terms = np.where(mask, dtype(0), dtype(-np.inf))
        operands = [np.asarray(x, dtype) for x in case.operands[:3]]
        terms_case = Case("Attention", [*operands, terms], {"scale": 0.2}, 24)
        check(terms_case, (4,), rtol=tolerance, atol=tolerance / 2)


def test_short_sequences_do_not_travel() -> None:
    short = attention(rows=40, keys=40)
    assert offered(short) == {text.replace("48", "40") for text in offered(short)}
    assert "S(2) S(2) S(2) -> S(2)" not in offered(short)
    assert "S(2) R R -> S(2)" in offered(short)
    assert "S(2) S(2) S(2) -> S(2)" not in offered(attention(rows=64))


def test_half_precision() -> None:
    for causal in (0, 1):
        case = attention(is_causal=causal)
        halves = [None if x is None else (x / 4).astype(np.float16) for x in case.operands]
        check(Case("Attention", halves, case.attributes, 24), (4,), rtol=1e-2, atol=5e-3)


def test_no_rank_gathers_keys() -> None:
    for text in local_functions(attention(is_causal=1), (4,)):
        assert "all_gather" not in text


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mesh", [(2,), (2, 2)])
def test_keys_of_the_runtimes_operator_travel(causal: int, mesh: tuple[int, ...]) -> None:
    operands = [normal(2, _ROWS, 8, seed=seed) for seed in range(3)]
    attributes = {"num_heads": 4, "unidirectional": causal, "scale": 0.6}
    case = Case("MultiHeadAttention", operands, attributes, 1, "com.microsoft")
    whole = ",".join(["S(1)"] * len(mesh))
    assert f"{whole} {whole} {whole} -> {whole}" in offered(case, mesh)
    masked = [*operands, None, np.full((2, _ROWS), 1, np.int32)]
    other = Case("MultiHeadAttention", masked, attributes, 1, "com.microsoft")
    assert not any(f"{whole} {whole} {whole}" in text for text in offered(other, mesh))


@pytest.mark.parametrize("causal", [0, 1])
def test_all_messages_are_priced(causal: int) -> None:
    case = attention(is_causal=causal)
    rule, found = check(case, (4,)).rule, check(case, (4,)).tried
    texts = local_functions(case, (4,))
    assert len(texts) == len(found)
    for strategy, text in zip(found, texts, strict=True):
        kinds = [kind for kind, *_ in rule.inner_steps(strategy, Mesh((4,)))]
        assert kinds.count("collective_permute") == text.count("topt.collective_permute")
        assert bool(rule.inner_bytes(strategy, Mesh((4,)))) == ("permute" in text)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_ranks_share_the_passes_over_scores(causal: int, dtype: type) -> None:
    case, ranks = attention(is_causal=causal, rows=160, keys=160), 4
    own = [np.asarray(x, dtype) for x in case.operands]
    report = check(Case("Attention", own, case.attributes, 24), (ranks,), rtol=1e-2, atol=5e-3)
    ring = next(strategy for strategy in report.tried if strategy.axes_of(2))
    rows = 160 // ranks // (2 if causal else 1)  # of a chunk in zigzag order, if causal
    scores = 4 * rows**2 * np.dtype(dtype).itemsize
    passes = 3 * ranks * (2 if causal else 1)
    steps = report.rule.inner_steps(ring, Mesh((ranks,)))
    assert [size for _, _, size in steps].count(scores) == passes
