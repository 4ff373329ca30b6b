"""Attention in training on one rank: its kernel, the rank with the most work, and workspace."""

from __future__ import annotations

from typing import Any

import pytest

from tensoropt.compiler.cost.compute import op_time_s, work_of
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.cost.fused_attention import (
    attention_workspace_bytes,
    fused_attention_of,
    has_kernel,
)
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.sharding.rule.seen import mean_seen
from tensoropt.compiler.sharding.rule.strategies import strategies
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.cudnn_attention import AttentionForm, workspace_bytes

ALONE, EIGHT = Mesh((1,)), Mesh((8,))
HEADS_FACTOR, ROWS_FACTOR, KEYS_FACTOR = 1, 2, 4
ROWS, HEADS, KEY_HEADS, SIZE = 8192, 32, 8, 128


def bf16(*shape: int) -> TensorInfo:
    return TensorInfo(shape, "bfloat16", 2)


def info_of(*, backward: bool = False, **attributes: Any) -> OpInfo:
    """Return the attention of two texts, or its gradient."""
    q, k = bf16(2, HEADS, ROWS, SIZE), bf16(2, KEY_HEADS, ROWS, SIZE)
    lse = TensorInfo((2, HEADS, ROWS), "float32", 4)
    given = tuple(sorted({"scale": 1.0, **attributes}.items()))
    if backward:
        operands, results = (q, q, k, k, q, lse), (q, k, k)
        return OpInfo("tensoropt.AttentionGradient", 1, operands, results, given)
    return OpInfo("tensoropt.Attention", 1, (q, k, k), (q, lse), given)


def strategy_of(info: OpInfo, mesh: Mesh, role: int | None = None) -> Strategy:
    return next(own for own in strategies(rule_for(info), mesh) if own.roles == (role,))


def flops(info: OpInfo, mesh: Mesh = ALONE, role: int | None = None) -> float:
    return work_of(info, rule_for(info), strategy_of(info, mesh, role), mesh).flops


@pytest.mark.parametrize(
    ("first", "last", "window"), [(0, 50, 0), (30, 50, 0), (3, 50, 7), (10, 20, 7)]
)
def test_rows_see_the_keys_before_them(first: int, last: int, window: int) -> None:
    seen = [min(row + 0.5, window or row + 0.5) for row in range(first, last)]
    assert mean_seen(first, last, window) == pytest.approx(sum(seen) / len(seen), rel=0.01)


@pytest.mark.parametrize("backward", [False, True])
def test_the_last_rank_of_a_causal_attention_sets_the_pace(backward: bool) -> None:
    info, plain = (info_of(backward=backward, causal=causal) for causal in (1, 0))
    assert flops(info) == flops(plain) / 2
    # Its rows see all keys, but for half of those in its own part.
    assert flops(info, EIGHT, ROWS_FACTOR) == pytest.approx(flops(plain) / 8 * (1 - 1 / 16))
    assert flops(info, EIGHT, HEADS_FACTOR) == flops(info) / 8
    assert flops(plain, EIGHT, ROWS_FACTOR) == flops(plain) / 8


def test_a_window_has_few_keys() -> None:
    info = info_of(causal=1, window=128)
    assert flops(info) == pytest.approx(flops(info_of()) * 128 / ROWS, rel=0.01)
    assert flops(info, EIGHT, ROWS_FACTOR) == pytest.approx(flops(info) / 8)


def test_gpus_have_no_kernel_for_a_rank_with_some_keys_and_all_rows() -> None:
    info = info_of(causal=1)
    for role, expected in ((ROWS_FACTOR, True), (HEADS_FACTOR, True), (KEYS_FACTOR, False)):
        split = strategy_of(info, EIGHT, role)
        assert has_kernel(info, split, EIGHT, load_device("h100").architectures) == expected
        assert has_kernel(info, split, EIGHT, ())


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(("window", "expected"), [(0, True), (128, False)])
def test_rings_on_gpus_have_no_rows_without_keys(
    window: int, expected: bool, backward: bool
) -> None:
    info = info_of(backward=backward, causal=1, window=window)
    rings = [own for own in strategies(rule_for(info), EIGHT) if own.joint_axes]
    assert rings
    for ring in rings:
        assert has_kernel(info, ring, EIGHT, load_device("h100").architectures) == expected
        assert has_kernel(info, ring, EIGHT, ())


def test_kernels_are_known_by_the_keys_that_a_query_sees() -> None:
    for backward, family in ((False, "attention"), (True, "attention_gradient")):
        for causal, seen in ((0, ROWS), (1, ROWS / 2)):
            kernel = fused_attention_of(info_of(backward=backward, causal=causal))
            assert kernel is not None
            assert (kernel.family, kernel.sizes) == (family, (seen, SIZE))


def test_times_are_those_that_were_measured_on_an_h200() -> None:
    """Eight thousand tokens, causal, 64 heads on 8 of keys: 1.708 and 5.083 ms."""
    device = load_device("h200")
    for backward, measured_s in ((False, 1.708e-3), (True, 5.083e-3)):
        info = info_of(backward=backward, causal=1)  # two texts with half of the heads
        found = op_time_s(info, rule_for(info), strategy_of(info, ALONE), ALONE, device)
        assert found == pytest.approx(measured_s, rel=0.05)


def test_kernels_of_gpus_have_a_workspace() -> None:
    h100, cpu = load_device("h100").architectures, load_device("cpu").architectures
    for backward in (False, True):
        info = info_of(backward=backward, causal=1)
        for mesh, role, heads in ((ALONE, None, HEADS), (EIGHT, HEADS_FACTOR, HEADS // 8)):
            strategy = strategy_of(info, mesh, role)
            form = AttentionForm(
                "bfloat16", 2, heads, heads // 4, ROWS, ROWS, SIZE, SIZE, causal=True,
                gradient=backward,
            )  # fmt: skip
            found = attention_workspace_bytes(info, strategy, mesh, h100)
            assert found == workspace_bytes(form, 90)
            assert attention_workspace_bytes(info, strategy, mesh, cpu) == 0
            unlike = attention_workspace_bytes(info, strategy, mesh, (80, 90))
            assert unlike == max(workspace_bytes(form, own) for own in (80, 90))
