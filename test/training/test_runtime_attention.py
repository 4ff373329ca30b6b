"""Gradients of the runtime's own attention operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from training.harness import check_node, node_model, normal
from training.vjp import Vjp

from tensoropt.compiler.support.errors import UserError

B, S, T, H, D = 2, 3, 5, 4, 2
MICROSOFT: Any = {"domain": "com.microsoft"}


def scores(q: Any, k: Any, count: int) -> Any:
    """Return `b h s t` of packed query and key."""
    q, k = (x.unflatten(2, (count, -1)).transpose(1, 2) for x in (q, k))
    return q @ k.mT / q.shape[-1] ** 0.5


def weighted(found: Any, v: Any) -> Any:
    """Return the packed result of masked scores."""
    heads = v.unflatten(2, (found.shape[1], -1)).transpose(1, 2)
    return (found.softmax(-1) @ heads).transpose(1, 2).flatten(2)


def triple(rows: int = S, keys: int = T) -> list[Any]:
    return [
        normal(B, rows, H * D), normal(B, keys, H * D, seed=1), normal(B, keys, H * 3, seed=2),
    ]  # fmt: skip


def test_multi_head_attention() -> None:
    check_node(
        "MultiHeadAttention", triple(), {"num_heads": H}, **MICROSOFT,
        torch=lambda q, k, v: weighted(scores(q, k, H), v),
    )  # fmt: skip


def test_its_bias_is_that_of_all_three() -> None:
    def expected(q: Any, k: Any, v: Any, b: Any) -> Any:
        parts = b.split([H * D, H * D, H * 3])
        return weighted(scores(q + parts[0], k + parts[1], H), v + parts[2])

    given = [*triple(), normal(H * (2 * D + 3), seed=3)]
    check_node("MultiHeadAttention", given, {"num_heads": H}, **MICROSOFT, torch=expected)


@pytest.mark.parametrize("form", ["lengths", "keys", "rows"])
def test_masks_of_keys(form: str) -> None:
    lengths = np.array([3, 5])
    mask = (np.arange(T) < lengths[:, None]).astype(np.int32)
    held = {"lengths": lengths.astype(np.int32), "keys": mask,
            "rows": np.repeat(mask[:, None], S, 1)}[form]  # fmt: skip

    def expected(q: Any, k: Any, v: Any, *_: Any) -> Any:
        import torch

        return weighted(scores(q, k, H) + (torch.tensor(mask) - 1)[:, None, None] * 10000, v)

    check_node(
        "MultiHeadAttention", [*triple(), None, held], {"num_heads": H}, **MICROSOFT,
        torch=expected,
    )  # fmt: skip


def test_a_bias_of_scores_causality_and_keys_given_out() -> None:
    def expected(q: Any, k: Any, v: Any, _b: Any, _m: Any, bias: Any) -> Any:
        import torch

        below = torch.ones(S, S, dtype=torch.bool).tril()
        found = (scores(q, k, H) + bias).masked_fill(~below, -torch.inf)
        heads = [x.unflatten(2, (H, -1)).transpose(1, 2) for x in (k, v)]
        return weighted(found, v), *heads

    given = [*triple(S, S), None, None, normal(1, H, S, S, seed=5)]
    check_node(
        "MultiHeadAttention", given, {"num_heads": H, "unidirectional": 1}, **MICROSOFT,
        outputs=3, torch=expected,
    )  # fmt: skip


@pytest.mark.parametrize("sizes", [None, [H * D, H * D, H * 3]])
def test_merged_attention(sizes: list[int] | None) -> None:
    widths = sizes or [H * D] * 3

    def expected(x: Any, w: Any, b: Any, _: Any) -> Any:
        import torch

        q, k, v = (x @ w + b).split(widths, -1)
        mask = torch.tensor([[0, 0, -10000], [0, 0, 0]], dtype=x.dtype)[:, None, None]
        return weighted(scores(q, k, H) + mask, v)

    width = sum(widths)
    given = [normal(B, S, 6), normal(6, width, seed=1), normal(width, seed=2),
             np.array([2, 3], np.int32)]  # fmt: skip
    attributes = {"num_heads": H, **({"qkv_hidden_sizes": sizes} if sizes else {})}
    check_node("Attention", given, attributes, **MICROSOFT, torch=expected)


def grouped(shared: int, rows: int = S) -> list[Any]:
    """Return query, key, value, no cache, and lengths; sizes of heads are multiples of 8."""
    last = np.full(B, rows - 1, np.int32)
    return [
        normal(B, rows, H * 8), normal(B, rows, shared * 8, seed=1),
        normal(B, rows, shared * 8, seed=2), None, None, last, np.array(rows, np.int32),
    ]  # fmt: skip


def expected_group(window: int = 0, softcap: float = 0.0) -> Any:
    def expected(q: Any, k: Any, v: Any, *_: Any) -> Any:
        import torch

        each = q.shape[2] // k.shape[2]
        k, v = (x.unflatten(2, (-1, 8)).repeat_interleave(each, 2).flatten(2) for x in (k, v))
        found = scores(q, k, H)
        found = softcap * torch.tanh(found / softcap) if softcap else found
        rows = found.shape[-1]
        seen = torch.ones(rows, rows, dtype=torch.bool).tril()
        seen &= torch.ones(rows, rows, dtype=torch.bool).triu(1 - window) if window else seen
        return weighted(found.masked_fill(~seen, -torch.inf), v)

    return expected


@pytest.mark.parametrize("shared", [4, 2, 1])
def test_grouped_attention(shared: int) -> None:
    attributes = {"num_heads": H, "kv_num_heads": shared}
    check_node(
        "GroupQueryAttention", grouped(shared), attributes, **MICROSOFT, outputs=3,
        literals={5, 6}, cotangents=["y0"], rtol=1e-4, torch=None,
    )  # fmt: skip
    check_node(
        "GroupQueryAttention", grouped(shared), attributes, **MICROSOFT,
        literals={5, 6}, torch=expected_group(),
    )  # fmt: skip


@pytest.mark.parametrize("attributes", [{"local_window_size": 2}, {"softcap": 1.5}])
def test_windows_and_softcap(attributes: dict[str, Any]) -> None:
    window, softcap = attributes.get("local_window_size", 0), attributes.get("softcap", 0.0)
    check_node(
        "GroupQueryAttention", grouped(2, 5), {"num_heads": H, "kv_num_heads": 2, **attributes},
        **MICROSOFT, literals={5, 6}, torch=expected_group(window, softcap),
    )  # fmt: skip


@pytest.mark.parametrize("size", [16, 32])
def test_angles_inside(size: int) -> None:
    """The runtime's kernel is what the forward results are compared with."""
    angles, last = normal(9, 8, seed=7), np.full(B, S - 1, np.int32)
    given = [normal(B, S, (H + 4) * size), *[None] * 4, last, np.array(S, np.int32)]
    given += [np.cos(angles), np.sin(angles)]
    check_node(
        "GroupQueryAttention", given, {"num_heads": H, "kv_num_heads": 2, "do_rotary": 1},
        **MICROSOFT, literals={5, 6}, wanted=["x0"],
    )  # fmt: skip


def test_keys_behind_the_end_are_hidden() -> None:
    given = [x if x is None else x.astype(np.float32) for x in grouped(2)[:5]]
    given += [np.array([1, 2], np.int32), np.array(S, np.int32)]
    vjp = Vjp(node_model("GroupQueryAttention", given, {"num_heads": H, "kv_num_heads": 2},
                         **MICROSOFT, literals={6}))  # fmt: skip
    feeds = {f"x{i}": x for i, x in enumerate(given) if x is not None and i != 6}
    dy = np.ones((B, S, H * 8), np.float32)
    assert not vjp.run(feeds, {"y0": dy}).gradients["x1"][0, 2].any()  # type: ignore[index]


@pytest.mark.parametrize(
    ("op_type", "operands", "outputs", "text"),
    [
        ("MultiHeadAttention", [normal(B, S, H, 3, D)], 1, "packed in one"),
        ("MultiHeadAttention", [*triple(), None, np.zeros(3 * B + 2, np.int32)], 1, "a mask of"),
        (
            "MultiHeadAttention",
            [*triple()[:2], normal(B, T, H * D), *[None] * 3, *[normal(B, H, 2, D)] * 2],
            (True, True, True),
            "cache",
        ),
    ],
)
def test_what_has_no_gradient(op_type: str, operands: list[Any], outputs: Any, text: str) -> None:
    narrow = [x.astype(np.float32) if x is not None and x.dtype == np.float64 else x
              for x in operands]  # fmt: skip
    model = node_model(op_type, narrow, {"num_heads": H}, **MICROSOFT, outputs=outputs)
    with pytest.raises(UserError, match=text):
        Vjp(model)
