"""Gradients of attention of the standard and of rotary embeddings."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from training.harness import NotRunnableError, check_node, node_model, normal
from training.vjp import Array, Vjp

from tensoropt.compiler.support.errors import UserError

B, S, T, D = 2, 3, 5, 4


def by_head(x: Any, heads: int) -> Any:
    """Return packed `b s (h d)` as `b h s d`."""
    return x.unflatten(2, (heads, -1)).transpose(1, 2) if x.dim() == 3 else x


def reference(
    q: Any, k: Any, v: Any, mask: Any = None, *, heads: int = 4, shared: int = 4, **options: Any
) -> Any:
    """Return attention as PyTorch computes it, in the form that the query has."""
    import torch

    packed = q.dim() == 3
    q, k, v = by_head(q, heads), by_head(k, shared), by_head(v, shared)
    y = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, enable_gqa=heads != shared, **options
    )
    return y.transpose(1, 2).flatten(2) if packed else y


def operands(*, heads: int = 4, shared: int = 4, packed: bool = False, keys: int = T) -> list[Any]:
    """Return query, key and value, the latter with larger elements."""
    made = []
    for seed, (count, rows, size) in enumerate(
        ((heads, S, D), (shared, keys, D), (shared, keys, D + 2))
    ):
        shape = (B, rows, count * size) if packed else (B, count, rows, size)
        made.append(normal(*shape, seed=seed))
    return made


def check_attention(given: list[Any], attributes: Any = None, **options: Any) -> None:
    """Check the gradients in float64, and in float32 that the runtime's own kernel agrees.

    In float64 there is none: the runtime expands the operator, with a scale rounded to float32.
    """
    options = {"version": 23, **options}
    narrow = [x.astype(np.float32) if x.dtype == np.float64 else x for x in given]
    check_node("Attention", given, attributes, same_forward=False, **options)
    options.pop("torch", None)
    with suppress(NotRunnableError):  # the kernel stretches no rows of a mask
        check_node("Attention", narrow, attributes, differences=False, rtol=1e-4, **options)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shared", [4, 2, 1])
def test_heads(shared: int, packed: bool) -> None:
    attributes = {"q_num_heads": 4, "kv_num_heads": shared} if packed else {}
    check_attention(
        operands(shared=shared, packed=packed), attributes,
        torch=lambda q, k, v: reference(q, k, v, shared=shared),
    )  # fmt: skip


@pytest.mark.parametrize("shared", [4, 2])
def test_causal(shared: int) -> None:
    check_attention(
        operands(shared=shared, keys=S), {"is_causal": 1},
        torch=lambda q, k, v: reference(q, k, v, shared=shared, is_causal=True),
    )  # fmt: skip


@pytest.mark.parametrize("shared", [4, 2])
@pytest.mark.parametrize("shape", [(S, T), (1, T), (4, S, T), (B, 1, S, T), (1, 4, S, T)])
def test_masks_that_add(shape: tuple[int, ...], shared: int) -> None:
    check_attention(
        [*operands(shared=shared), normal(*shape, seed=7)],
        torch=lambda q, k, v, mask: reference(q, k, v, mask, shared=shared),
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(S, T), (B, 1, 1, T), (B, 4, S, T)])
def test_masks_of_bools(shape: tuple[int, ...]) -> None:
    mask = normal(*shape, seed=9) > 0
    mask[..., 0] = True
    check_attention(
        [*operands(shared=2), mask],
        torch=lambda q, k, v, mask: reference(q, k, v, mask, shared=2),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [np.bool_, np.float64])
def test_a_row_that_sees_nothing_is_zero(dtype: Any) -> None:
    seen = np.array([[True] * T, [False] * T, [True, False, True, False, True]])
    mask = seen if dtype == np.bool_ else np.where(seen, 0, -np.inf)
    check_attention([*operands(), mask], literals={3})
    vjp = Vjp(node_model("Attention", [*operands(), mask], version=23, literals={3}))
    q, k, v = operands()
    run = vjp.run({"x0": q, "x1": k, "x2": v}, {"y0": np.ones((B, 4, S, D + 2))})
    assert not run.outputs["y0"][:, :, 1].any()
    assert not run.gradients["x0"][:, :, 1].any()  # type: ignore[index]


def test_a_mask_with_causality_scale_and_softcap() -> None:
    def capped(q: Any, k: Any, v: Any, mask: Any) -> Any:
        import torch

        scores = 2 * torch.tanh(0.75 * q @ k.mT / 2) + mask
        below = torch.ones(S, S, dtype=torch.bool).tril()
        return scores.masked_fill(~below, -torch.inf).softmax(-1) @ v

    attributes = {"is_causal": 1, "scale": 0.75, "softcap": 2.0}  # exact in float32
    given = [*operands(keys=S), normal(S, S, seed=5)]
    check_attention(given, attributes, torch=capped)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_scores_and_keys_that_are_given_out(mode: int) -> None:
    attributes = {"qk_matmul_output_mode": mode, "softcap": 3.0}
    check_attention(
        [*operands(shared=2), normal(S, T)], attributes,
        outputs=(True, False, False, True),
    )  # fmt: skip


def test_a_mask_may_be_shorter_than_the_keys() -> None:
    def padded(q: Any, k: Any, v: Any, mask: Any) -> Any:
        import torch

        behind = torch.full((S, 1), -torch.inf, dtype=mask.dtype)
        return reference(q, k, v, torch.cat([mask, behind], 1))

    check_attention([*operands(), normal(S, T - 1)], version=24, torch=padded)


def test_a_softmax_of_its_own_precision() -> None:
    given = [x.astype(np.float32) for x in operands()]
    vjp = check_node("Attention", given, {"softmax_precision": 11}, version=23, torch=reference)
    assert vjp.ops.count("Cast") >= 2


def test_values_and_masks_of_their_own_type() -> None:
    q, k, v = (x.astype(np.float32) for x in operands())
    given = [q.astype(np.float16), k.astype(np.float16), v, normal(S, T).astype(np.float32)]
    vjp = Vjp(node_model("Attention", given, version=23))
    whole = Vjp(node_model("Attention", [q, k, v, given[3]], version=23))
    dy = normal(B, 4, S, D + 2).astype(np.float32)
    feeds = {f"x{i}": x for i, x in enumerate(given)}
    got = vjp.run(feeds, {"y0": dy.astype(np.float16)}).gradients
    expected = whole.run({n: x.astype(np.float32) for n, x in feeds.items()}, {"y0": dy}).gradients
    for name, dx in expected.items():
        np.testing.assert_allclose(got[name], dx, rtol=2e-2, atol=2e-2)  # type: ignore[arg-type]


def test_nothing_is_kept_but_the_weights() -> None:
    model = node_model("Attention", operands(keys=S), {"is_causal": 1}, version=23)
    ops = Vjp(model).ops
    assert ops.count("Softmax") == 1
    assert "Where" not in ops[ops.index("Softmax") :]


def test_a_cache_is_refused() -> None:
    cache = normal(B, 4, 2, D), normal(B, 4, 2, D + 2)
    model = node_model(
        "Attention", [*operands(), None, *cache], version=23, outputs=(True, True, True)
    )
    with pytest.raises(UserError, match="it reads a cache of keys and values"):
        Vjp(model)


def test_a_window_is_refused() -> None:
    model = node_model("Attention", operands(), {"left_window_size": 2}, version=25)
    with pytest.raises(UserError, match="a row sees a window of the keys"):
        Vjp(model)


def angles(rows: int, half: int) -> tuple[Array, Array]:
    held = normal(rows, half, seed=4)
    return np.cos(held), np.sin(held)


def rotated(x: Any, cosines: Any, sines: Any, *, interleaved: bool) -> Any:
    """Return `b h s d` turned by angles of `b s d/2`."""
    import torch

    cosines, sines = cosines[:, None], sines[:, None]
    size = cosines.shape[-1]
    x, rest = x[..., : 2 * size], x[..., 2 * size :]
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :size], x[..., size:])
    parts = a * cosines - b * sines, b * cosines + a * sines
    turned = torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)
    return torch.cat([turned, rest], -1)


@pytest.mark.parametrize("part", [0, 4])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
def test_rotary_embedding(packed: bool, interleaved: int, part: int) -> None:
    cosines, sines = angles(7, (part or 8) // 2)
    picks = np.array([[0, 2, 4], [1, 6, 3]])
    x = normal(B, S, 3 * 8) if packed else normal(B, 3, S, 8)
    attributes = {"interleaved": interleaved, "rotary_embedding_dim": part, "num_heads": 3}

    def expected(x: Any, cosines: Any, sines: Any, picks: Any) -> Any:
        x = by_head(x, 3)
        y = rotated(x, cosines[picks], sines[picks], interleaved=bool(interleaved))
        return y.transpose(1, 2).flatten(2) if packed else y

    check_node(
        "RotaryEmbedding", [x, cosines, sines, picks], attributes, version=23, torch=expected,
        wanted=["x0"],
    )  # fmt: skip


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("first", [False, True])
def test_the_runtime_s_rotary_embedding(first: bool, interleaved: int) -> None:
    cosines, sines = angles(7, 4)
    picks = np.array([2]) if first else np.array([[0, 2, 4], [1, 6, 3]])

    def expected(x: Any, picks: Any, cosines: Any, sines: Any) -> Any:
        import torch

        picks = torch.stack([picks[0] + torch.arange(S)] * B) if first else picks
        return rotated(x, cosines[picks], sines[picks], interleaved=bool(interleaved))

    check_node(
        "RotaryEmbedding", [normal(B, 3, S, 8), picks, cosines, sines],
        {"interleaved": interleaved}, domain="com.microsoft", torch=expected, wanted=["x0"],
    )  # fmt: skip


def test_angles_are_constants() -> None:
    given = [x.astype(np.float32) for x in (normal(B, 3, S, 8), *angles(7, 4))]
    model = node_model("RotaryEmbedding", [*given, np.array([[0, 2, 4], [1, 6, 3]])], version=23)
    assert Vjp(model).gradients["x1"] is None
