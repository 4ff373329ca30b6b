"""Sizes of kernels on one rank: attention, mixtures of experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tensoropt.compiler.cost.compute import op_time_s, work_of
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.cost.kernel import FAMILIES, Kernel
from tensoropt.compiler.cost.kernels import kernel_of
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.sharding.rule.strategies import strategies
from tensoropt.runtime.layout.mesh import Mesh

ALONE, TWO = Mesh((1,)), Mesh((2,))


def f16(*shape: int) -> TensorInfo:
    return TensorInfo(shape, "float16", 2)


def info_of(
    name: str, operands: tuple[Any, ...], *results: TensorInfo, **attributes: Any
) -> OpInfo:
    return OpInfo(
        name, 1, operands, results, tuple(sorted(attributes.items())), standard_version=24
    )


def grouped(tokens: int, past: int, **attributes: Any) -> OpInfo:
    """Return the attention of 4 sequences with 32 heads of 128 elements on 8 heads of keys."""
    new, cache = f16(4, tokens, 8 * 128), f16(4, 8, past, 128)
    ends = TensorInfo((4,), "int32", 4)
    total = TensorInfo((), "int32", 4)
    kept = f16(4, 8, past + tokens, 128)
    query = f16(4, tokens, 32 * 128)
    operands = (query, new, new, cache, cache, ends, total)
    heads = {"num_heads": 32, "kv_num_heads": 8, **attributes}
    name = "com.microsoft.GroupQueryAttention"
    return info_of(name, operands, query, kept, kept, **heads)


def kernel(info: OpInfo, mesh: Mesh = ALONE, role: int | None = None) -> Kernel | None:
    rule = rule_for(info)
    return kernel_of(info, rule, strategy_of(info, mesh, role), mesh)


def strategy_of(info: OpInfo, mesh: Mesh, role: int | None = None) -> Strategy:
    return next(own for own in strategies(rule_for(info), mesh) if own.roles == (role,))


def test_a_step_of_decoding_sees_all_keys() -> None:
    assert kernel(grouped(1, 999)) == Kernel("decoding", (4 * 8, 4, 1000, 128))


def test_heads_and_sequences_are_split() -> None:
    for factor in (0, 1):
        assert kernel(grouped(1, 999), TWO, factor) == Kernel("decoding", (2 * 8, 4, 1000, 128))


def test_a_prompt_sees_half_of_its_keys() -> None:
    assert kernel(grouped(1000, 0)) == Kernel("prefill", (4 * 8, 4, 500.5, 128), 0.5005)


def test_a_window_limits_the_keys() -> None:
    found = kernel(grouped(1, 999, local_window_size=100))
    assert found == Kernel("decoding", (4 * 8, 4, 100, 128), 0.1)
    # The first 100 queries see 1 to 100 keys, the other 900 see 100.
    found = kernel(grouped(1000, 0, local_window_size=100))
    assert found is not None
    assert found.sizes[2] == pytest.approx((100 * 101 / 2 + 900 * 100) / 1000)


def test_keys_outside_the_window_are_not_read() -> None:
    def moved(info: OpInfo) -> float:
        return work_of(info, rule_for(info), strategy_of(info, ALONE), ALONE).bytes

    whole, part = moved(grouped(1, 999)), moved(grouped(1, 999, local_window_size=100))
    assert whole - part == pytest.approx(2 * (1 - 100 / 999) * 4 * 8 * 999 * 128 * 2)


def test_attention_without_causality_sees_all_keys() -> None:
    query = f16(2, 64, 4 * 32)
    found = kernel(info_of("com.microsoft.MultiHeadAttention", (query,) * 3, query, num_heads=4))
    assert found == Kernel("prefill", (2 * 4, 1, 64, 32))


def test_standard_attention_has_rows_of_a_rank() -> None:
    query, key = f16(2, 8, 64, 32), f16(2, 4, 64, 32)
    info = info_of("Attention", (query, key, key), query)
    for mesh, role in ((ALONE, None), (TWO, 2)):  # the factor of the rows
        assert kernel(info, mesh, role) == Kernel("prefill", (2 * 4, 2, 64, 32))


def mixture(tokens: int, **attributes: Any) -> OpInfo:
    operands = (
        f16(tokens, 64),
        f16(tokens, 8),
        f16(8, 96, 64),
        None,
        f16(8, 64, 96),
        None,
        f16(8, 96, 64),
    )
    return info_of("com.microsoft.MoE", operands, f16(tokens, 64), k=2, **attributes)


def test_a_mixture_has_the_tokens_of_an_expert() -> None:
    assert kernel(mixture(100)) == Kernel("experts", (25, 64, 96, 8))
    assert kernel(mixture(100), TWO, 1) == Kernel("experts", (25, 64, 96, 4))
    assert kernel(mixture(100), TWO, 2) == Kernel("experts", (25, 64, 48, 8))


def test_one_token_reads_the_experts_that_it_chooses() -> None:
    def moved(tokens: int) -> float:
        info = mixture(tokens)
        return work_of(info, rule_for(info), strategy_of(info, ALONE), ALONE).bytes

    weights, token = 3 * 8 * 64 * 96 * 2, (64 + 8 + 64) * 2
    assert moved(1) == pytest.approx(weights * 2 / 8 + token)
    assert moved(2) == pytest.approx(weights * (1 - (6 / 8) ** 2) + 2 * token)


def test_cuda_graphs_save_the_launches_of_the_host() -> None:
    device, small = load_device("h100"), info_of("Relu", (f16(8),), f16(8))
    rule, strategy = rule_for(small), strategy_of(small, ALONE)
    times = [
        op_time_s(small, rule, strategy, ALONE, own) for own in (device, device.with_cuda_graphs())
    ]
    assert times == pytest.approx([device.host_launch_s, device.launch_overhead_s], rel=1e-3)


def test_a_kernel_takes_its_share_of_the_roofline() -> None:
    device, info = load_device("h100"), grouped(4096, 0)
    own = kernel(info)
    assert own is not None
    rule, strategy = rule_for(info), strategy_of(info, ALONE)
    table = device.kernels["prefill", "bfloat16"]
    flops_s = 4 * 4 * 32 * 4096 * 2048.5 * 128 / device.peak_flop_per_s("float16")
    found = op_time_s(info, rule, strategy, ALONE, device)
    expected = table.factor(own.sizes) * (flops_s + device.launch_overhead_s)
    assert found == pytest.approx(expected, rel=1e-3)
    without = replace(device, kernels={})
    assert op_time_s(info, rule, strategy, ALONE, without) > found


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_measured_on_the_included_gpus(family: str) -> None:
    names = ["a100", "h100", "h200", "b200", "b300", "gb200", "l40s", "rtx_pro_6000"]
    if family.startswith("attention"):
        names.remove("rtx_pro_6000")  # has no kernel of attention in training
    for name in names:
        table = load_device(name).kernel_table(family, "float16")
        assert table is not None
        assert len(table.knots) == len(FAMILIES[family])
