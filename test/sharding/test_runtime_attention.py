"""The runtime's attention: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

from tensoropt.compiler.sharding.proof.onnx_node import Array

MESHES = [(2,), (4,), (2, 2)]
RUNTIME = "com.microsoft"
SIZE = 16

Operands = list[Array | None]


def short(found: set[str], operands: int) -> set[str]:
    """Return strategies with the first ``operands`` operands only, and the results."""
    parts = [text.split(" -> ") for text in found]
    return {" ".join(left.split()[:operands]) + " -> " + right for left, right in parts}


def grouped(
    heads: tuple[int, int] = (4, 2), *, batch: int = 2, rows: int = 1, past: int = 6,
    packed: bool = False, rotary: bool = False, positions: bool = False, bias: str = "",
    sink: bool = False, **attributes: Any,
) -> Case:  # fmt: skip
    """Return grouped attention of new ``rows`` and ``past`` ones, some of them not used."""
    (count, shared), total = heads, rows + past
    sizes = [(count + 2 * shared) * SIZE] if packed else [n * SIZE for n in (count, shared, shared)]
    made: Operands = [normal(batch, rows, n, seed=i) for i, n in enumerate(sizes)]
    made += [None] * (3 - len(made))
    cache = [normal(batch, shared, past, SIZE, seed=5 + i) if past else None for i in range(2)]
    lengths = np.arange(batch) % 2 + total - 2 if past else np.full(batch, total - 1)
    angles = normal(32, SIZE // 2)
    ids = np.arange(rows)[None] + past + np.zeros((batch, 1), np.int64)
    shape = {"": (), "whole": (1, 1), "each": (batch, count)}[bias]
    more: Operands = [
        *([np.cos(angles), np.sin(angles)] if rotary else [None, None]),
        ids if positions else None,
        normal(*shape, rows, total, seed=9) if bias else None,
        normal(count, seed=10) if sink else None,
    ]
    held = [lengths.astype(np.int32), np.array([total], np.int32)]
    attributes |= {"num_heads": count, "kv_num_heads": shared, "do_rotary": int(rotary)}
    operands = [*made, *cache, *held, *more]
    return Case("GroupQueryAttention", operands, attributes, 1, RUNTIME, results=(True,) * 3)


def test_query_heads_of_one_key_head_split() -> None:
    assert "S(2) R R R R R -> S(2) R R" in short(offered(grouped((4, 1))), 6)
    assert "R R R R R R -> S(2) R R" in short(offered(grouped((4, 1), packed=True)), 6)
    # The first axis splits the key heads, the second the query heads of each.
    both = "S(2),S(2) S(2),R S(2),R S(1),R S(1),R R,R -> S(2),S(2) S(1),R S(1),R"
    assert both in short(offered(grouped((8, 2)), (2, 2)), 6)
    assert not any("S(2),S(2) S(2),R" in text for text in offered(grouped((8, 4)), (2, 2)))
    for packed in (False, True):
        check(grouped((8, 2), packed=packed, bias="each", sink=True), (2, 2))
        check(grouped((4, 1), packed=packed, rotary=True, past=0, rows=5), (4,))


def test_grouped_heads_split_with_their_cache() -> None:
    assert short(offered(grouped()), 6) == {
        "R R R R R R -> R R R",
        "S(0) S(0) S(0) S(0) S(0) S(0) -> S(0) S(0) S(0)",
        "S(2) S(2) S(2) S(1) S(1) R -> S(2) S(1) S(1)",
    }


def test_packed_heads_are_taken_from_the_whole() -> None:
    assert short(offered(grouped(packed=True)), 6) == {
        "R R R R R R -> R R R",
        "S(0) R R S(0) S(0) S(0) -> S(0) S(0) S(0)",
        "R R R S(1) S(1) R -> S(2) S(1) S(1)",
    }


def test_a_head_that_all_share_is_not_split() -> None:
    assert not any("S(1)" in text for text in offered(grouped((4, 1))))


def test_sequences_with_positions_stay_together_unless_one_token_long() -> None:
    token = grouped(rotary=True, positions=True)
    prompt = grouped(rotary=True, positions=True, rows=4, past=0)
    assert any("S(0)" in text for text in offered(token))
    assert not any("S(0)" in text for text in short(offered(prompt), 3))


@examples(40)
@given(
    mesh=st.sampled_from(MESHES),
    heads=st.sampled_from([(2, 2), (4, 2), (4, 4), (8, 4)]),
    steps=st.sampled_from([(1, 6), (4, 0), (1, 3)]),
    packed=st.booleans(),
    rotary=st.sampled_from([(False, False), (True, False), (True, True)]),
    bias=st.sampled_from(["", "whole", "each"]),
    sink=st.booleans(),
    window=st.sampled_from([-1, 3]),
    softcap=st.sampled_from([0.0, 4.0]),
)
def test_any_grouped_attention(
    mesh: tuple[int, ...], heads: tuple[int, int], steps: tuple[int, int], packed: bool,
    rotary: tuple[bool, bool], bias: str, sink: bool, window: int, softcap: float,
) -> None:  # fmt: skip
    case = grouped(
        heads, batch=4, rows=steps[0], past=steps[1], packed=packed, rotary=rotary[0],
        positions=rotary[1], bias=bias, sink=sink, local_window_size=window, softcap=softcap,
    )  # fmt: skip
    check(case, mesh)


def test_heads_that_cannot_be_counted_stay_whole() -> None:
    packed = replace(grouped(packed=True), symbolic=frozenset({(0, 2)}))
    assert not any("S(1)" in text for text in offered(packed))
    biased = replace(multi_head(bias=True), symbolic=frozenset({(3, 0)}))
    assert not any("S(2)" in text for text in offered(biased))


def masks(batch: int, rows: int, total: int, kind: str) -> Array | None:
    """Return a padding mask: ends (then starts) of the sequences, or a flag per key (and row)."""
    ends = np.arange(batch) % 2
    made = {
        "ends": ends + total - 1,
        "starts": np.concatenate([ends + total - 1, ends]),
        "keys": np.arange(batch * total).reshape(batch, total) % 3 > 0,
        "all": np.arange(batch * rows * total).reshape(batch, rows, total) % 4 > 0,
    }
    return made[kind].astype(np.int32) if kind else None


def multi_head(
    heads: int = 4, *, batch: int = 2, rows: int = 3, keys: int = 5, past: int = 0,
    cross: bool = False, bias: bool = False, mask: str = "", extra: tuple[int, int] | None = None,
    width: int = 8, **attributes: Any,
) -> Case:  # fmt: skip
    """Return attention of ``rows`` queries; the keys of ``cross`` attention have heads first."""
    hidden, total = heads * SIZE, past + keys
    made = [normal(batch, keys, hidden, seed=1), normal(batch, keys, heads * width)]
    if cross:
        made = [normal(batch, heads, keys, SIZE, seed=i) for i in (1, 2)]
    own = SIZE if cross else width
    cache = [normal(batch, heads, past, n, seed=n) if past else None for n in (SIZE, own)]
    operands = [
        normal(batch, rows, hidden),
        *made,
        normal(2 * hidden + heads * own) if bias else None,
        masks(batch, rows, total, mask),
        normal(*extra, rows, total, seed=7) if extra else None,
        *cache,
    ]
    attributes |= {"num_heads": heads}
    results = (True,) * (3 if past else 1)
    return Case("MultiHeadAttention", operands, attributes, 1, RUNTIME, results=results)


def test_heads_and_rows_split_in_multi_head_attention() -> None:
    case = multi_head(rows=4, bias=True, extra=(1, 4))
    assert offered(case) == {
        "R R R R R R R R -> R",
        "S(0) S(0) S(0) R R R R R -> S(0)",
        "S(2) S(2) S(2) R R S(1) R R -> S(2)",
        "S(1) R R R R S(2) R R -> S(1)",
    }
    cached = multi_head(rows=3, keys=3, past=4, width=SIZE)
    assert "S(2) S(2) S(2) R R R S(1) S(1) -> S(2) S(1) S(1)" in offered(cached)


def test_rows_stay_whole_where_they_are_counted() -> None:
    assert not any("-> S(1)" in text for text in offered(multi_head(rows=4, unidirectional=1)))


@examples(60)
@given(
    mesh=st.sampled_from(MESHES),
    heads=st.sampled_from([1, 2, 4]),
    cross=st.booleans(),
    bias=st.booleans(),
    mask=st.sampled_from(["", "ends", "keys", "all"]),
    extra=st.sampled_from([None, (1, 1), (4, 1), (1, 4)]),
    past=st.sampled_from([0, 2]),
    causal=st.booleans(),
)
def test_any_multi_head_attention(
    mesh: tuple[int, ...], heads: int, cross: bool, bias: bool, mask: str,
    extra: tuple[int, int] | None, past: int, causal: bool,
) -> None:  # fmt: skip
    case = multi_head(
        heads, batch=4, rows=4, keys=4, past=0 if cross else past, cross=cross, bias=bias,
        mask=mask, extra=extra and (extra[0], min(extra[1], heads)), unidirectional=int(causal),
        width=SIZE,
    )  # fmt: skip
    check(case, mesh)


def merged(
    heads: int = 4, *, batch: int = 2, rows: int = 4, past: int = 0,
    mask: str = "", extra: tuple[int, int] | None = None, width: int = 8, **attributes: Any,
) -> Case:  # fmt: skip
    """Return attention with merged projections of 12 elements; values have ``width`` per head."""
    sizes, total = (heads * 8, heads * 8, heads * width), past + rows
    operands = [
        normal(batch, rows, 12),
        normal(12, sum(sizes), seed=1),
        normal(sum(sizes), seed=2),
        masks(batch, rows, total, mask),
        normal(2, batch, heads, past, 8, seed=3) if past else None,
        normal(*extra, rows, total, seed=4) if extra else None,
    ]
    attributes |= {"num_heads": heads} | ({"qkv_hidden_sizes": sizes} if width != 8 else {})
    results = (True, True) if past else (True,)
    return Case("Attention", operands, attributes, 1, RUNTIME, results=results)


def test_merged_projections_split_by_batch_and_heads() -> None:
    assert offered(merged(past=3, mask="keys")) == {
        "R R R R R R -> R R",
        "S(0) R R S(0) S(1) R -> S(0) S(1)",
        "R R R R S(2) R -> S(2) S(2)",
    }


def test_a_mask_of_ends_and_starts_keeps_the_batch() -> None:
    assert not any("S(0) R" in text for text in offered(merged(mask="starts")))
    assert "S(0) R R S(0) R R -> S(0)" in offered(merged(mask="ends"))


@examples(40)
@given(
    mesh=st.sampled_from(MESHES),
    heads=st.sampled_from([2, 4]),
    past=st.sampled_from([0, 3]),
    mask=st.sampled_from(["", "ends", "starts", "keys", "all"]),
    extra=st.sampled_from([None, (1, 1), (4, 1), (1, 2)]),
    width=st.sampled_from([8, 4]),
    causal=st.booleans(),
)
def test_any_merged_attention(
    mesh: tuple[int, ...], heads: int, past: int, mask: str, extra: tuple[int, int] | None,
    width: int, causal: bool,
) -> None:  # fmt: skip
    if past:  # with a cache the runtime takes no bias, and values as wide as keys
        extra, width = None, 8
    extra = extra and (extra[0], heads if extra[1] > 1 else 1)
    case = merged(
        heads, batch=4, past=past, mask=mask, extra=extra, width=width, unidirectional=int(causal)
    )
    check(case, mesh)


def test_work() -> None:
    assert check(multi_head(), (2,)).flops == 2 * 2 * 3 * 5 * 4 * (8 + 8)
    assert check(grouped(), (2,)).flops == 2 * 2 * 7 * 2 * 4 * SIZE
    projected, attended = 2 * 4 * 12 * 96, 2 * 4 * 4 * 64
    assert check(merged(), (2,)).flops == 2 * (projected + attended)
