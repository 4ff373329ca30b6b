"""Mixtures of experts: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, local_functions, normal, offered
from sharding.mixtures import HIDDEN, LOADS, RUNTIME, WIDE, mixture, mixtures, routed

from tensoropt.compiler.cost.compute import work_of
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.cost.experts import experts_of
from tensoropt.compiler.cost.nodes import inner_steps
from tensoropt.compiler.sharding.proof.onnx_node import Array
from tensoropt.runtime.layout.mesh import Mesh

MESHES = [(2,), (4,), (2, 2)]


def test_tokens_experts_and_features_split() -> None:
    assert offered(mixture(k=2)) == {
        "R R R R R R -> R",
        "S(0) S(0) R R R R -> S(0)",
        "R R S(0) S(0) S(0) S(0) -> P(sum)",
        "R R S(1) S(1) S(2) P(sum) -> P(sum)",
        "S(0) S(0) S(0) S(0) S(0) S(0) -> S(0)",
    }


def test_sequences_split_with_their_tokens() -> None:
    assert "S(0) S(0) R R R R -> S(0)" in offered(mixture(tokens=(2, 3)))
    assert not any("S(0) S(0) R" in text for text in offered(mixture(tokens=(3, 2))))


def test_ranks_run_their_experts_on_the_tokens_that_select_them() -> None:
    routing = [text for text in local_functions(mixture(k=2), (2,)) if "onnx.NonZero" in text]
    [split] = [text for text in routing if "topt.all_to_all_rows" not in text]
    [call] = [line for line in split.splitlines() if '"onnx.com.microsoft.MoE"' in line]
    assert "k = 1" in call and "(tensor<?x16xf32>, tensor<?x2xf32>, tensor<2x32x16xf32>" in call


def test_a_rank_without_tokens_adds_nothing() -> None:
    for case in (mixture(k=2), quantized(k=2, normalize_routing_weights=1)):
        logits = np.tile(np.array([5, 4, 0, 0], np.float32), (6, 1))
        operands = [case.operands[0], logits, *case.operands[2:]]
        check(replace(case, operands=operands), (2,), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("load", LOADS)
def test_loads_may_be_uneven(load: str, ranks: int) -> None:
    check(routed(mixture(4, k=2, tokens=(8,)), *LOADS[load]), (ranks,), opens=False)


def test_tokens_go_once_to_each_rank_of_their_experts() -> None:
    [sent] = [
        text for text in local_functions(mixture(k=2), (2,)) if "topt.all_to_all_rows" in text
    ]
    there, back = [line for line in sent.splitlines() if "topt.all_to_all_rows" in line]
    assert "grid_axes = array<i16: 0>" in there and "tensor<2x2xi64>" in there
    assert "(tensor<?x16xf32>" in there and "(tensor<?x16xf32>" in back
    assert sent.count("shard.all_gather") == 1  # of the routes


def test_tokens_are_sent_along_one_axis_and_shared_along_the_other() -> None:
    found = offered(mixture(4, k=2, tokens=(8,)), (2, 2))
    sent, each = "S(0) ", "S(0),S(0) "
    weights = each * 4
    assert f"{'S(0),R ' * 2}{weights.rstrip()} -> S(0),P(sum)" in found
    assert f"{each * 2}{(sent.strip() + ',R ') * 4}".rstrip() + " -> S(0),S(0)" in found
    assert f"{each * 2}{weights.rstrip()} -> S(0),S(0)" in found


def test_experts_and_their_tokens_are_padded() -> None:
    found = check(mixture(7, k=2, tokens=(8,)), (4,)).offered
    assert "S(0) S(0) S(0) S(0) S(0) S(0) -> S(0)" in found


def test_copies_of_tokens_are_priced() -> None:
    report = check(mixture(k=2), (2,))
    strategies = [s for s in report.tried if s.axes_of(1)]
    [shared] = [s for s in strategies if not s.joint_axes]
    steps = report.rule.inner_steps(shared, Mesh((2,)))
    row = HIDDEN * 4
    copies = [(6 * 2 * 8, 25), (6 * row, 2), (12 * row, 2)]
    assert Counter((kind, size) for kind, _, size in steps) == {
        ("copy", size): times for size, times in copies
    }
    device = load_device("cpu")
    timed = inner_steps(report.info, report.rule, shared, Mesh((2,)), device, lambda operand: False)
    assert [(kind, size) for kind, _, size, _ in timed] == [("copy", n * k) for n, k in copies]
    assert timed[0][3] >= 25 * device.launch_overhead_s


def test_rows_that_are_sent_are_priced() -> None:
    """Two choices reach 2 (1 - 1 / 4) of two ranks, so that 3 tokens are 4.5 rows."""
    report = check(mixture(k=2), (2,))
    [sent] = [s for s in report.tried if s.joint_axes]
    row = HIDDEN * 4
    wanted = [
        ("copy", 4.5 * 2 * 8, 25),
        ("copy", 6 * row, 2),  # the pairs of all tokens and their experts, divided once
        ("copy", 9 * row, 2),
        ("copy", 3 * 2 * 8, 45),
        ("all_gather", 3 * 2 * 8, 1),
        ("copy", 4.5 * row, 2),
        ("all_to_all_rows", 4.5 * row, 2),
        ("copy", 6 * (1 - 1 / 16) * row, 2),  # four choices reach nearly both ranks
    ]
    found = groupby(report.rule.inner_steps(sent, Mesh((2,))))
    times = [(kind, size, len(list(equal))) for (kind, _, size), equal in found]
    assert times == wanted


def test_sent_tokens_divide_the_work_once() -> None:
    report = check(mixture(k=2), (2,))
    mesh, [sent] = Mesh((2,)), [s for s in report.tried if s.joint_axes]
    assert work_of(report.info, report.rule, sent, mesh).flops == report.flops / 2
    [shared] = [s for s in report.tried if s.axes_of(1) and not s.joint_axes]
    kernels = [experts_of(report.info, own, mesh) for own in (sent, shared)]
    assert kernels[0] == kernels[1]


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_uneven_experts(ranks: int) -> None:
    mixed = mixture(15, k=2), mixture(7, k=1, normalize_routing_weights=1, biases=False)
    for case in (*mixed, quantized(7, k=2, block=32, bits=8, points=True, weights=True)):
        found = check(case, (ranks,), rtol=1e-2, atol=1e-2).offered
        assert any(text.startswith("R R S(0)") for text in found)


def test_features_one_after_the_other_stay_whole() -> None:
    assert any("S(1)" in text for text in offered(mixture(fused=1, k=2)))


def test_a_sparse_mixer_keeps_its_experts() -> None:
    found = offered(mixture(k=2, use_sparse_mixer=1))
    assert not any("S(0) S(0) S(0) S(0)" in text for text in found)


def test_equal_weights_are_taken_in_order() -> None:
    case = mixture(k=2, tokens=(4,))
    operands = list(case.operands)
    operands[1] = np.zeros((4, 4), np.float32)
    check(Case("MoE", operands, case.attributes, 1, RUNTIME), (2,))


@examples(40)
@given(mesh=st.sampled_from(MESHES), forward=mixtures())
def test_any_mixture(mesh: tuple[int, ...], forward: Case) -> None:
    check(forward, mesh)


def quantized(
    experts: int = 4, *, tokens: tuple[int, ...] = (6,), bits: int = 4, block: int = 0,
    biases: bool = True, points: bool = False, weights: bool = False, fused: int = 0,
    hidden: int = 32, wide: int = 64, **attributes: Any,
) -> Case:  # fmt: skip
    """Return a mixture of quantized experts that widen ``hidden`` elements to ``wide``."""
    rows = int(np.prod(tokens))
    double, rng = (2 if fused else 1) * wide, np.random.default_rng(0)

    def packed(*shape: int) -> Array:
        return rng.integers(0, 256, (experts, *shape), np.uint8)

    def scales(n: int, k: int) -> Array:
        shape = (experts, n, k // block) if block else (experts, n)
        return rng.uniform(0.01, 0.05, shape).astype(np.float32)

    def zero(n: int, k: int) -> Array | None:
        if not points:
            return None
        return packed(n, -(-k // block * bits // 8)) if block else packed(n * bits // 8)

    operands = [
        normal(*tokens, hidden),
        normal(rows, experts),
        packed(double, hidden * bits // 8),
        scales(double, hidden),
        normal(experts, double, seed=2) if biases else None,
        packed(hidden, wide * bits // 8),
        scales(hidden, wide),
        normal(experts, hidden, seed=4) if biases else None,
        *[None] * 3,
        zero(double, hidden),
        zero(hidden, wide),
        None,
        normal(rows, experts, seed=5) ** 2 if weights else None,
    ]
    attributes |= {"expert_weight_bits": bits} | ({"block_size": block} if block else {})
    attributes |= {"swiglu_fusion": fused, "activation_type": "swiglu"} if fused else {}
    return Case("QMoE", operands, attributes, 1, RUNTIME)


def test_quantized_features_split_between_blocks() -> None:
    none = " R R R R R R R"
    whole = f"R R R R R R R R{none} -> R"
    tokens = f"S(0) S(0) R R R R R R{none} -> S(0)"
    features = f"R R S(1) S(1) S(1) S(2) S(2) P(sum){none} -> P(sum)"
    experts = f"R R S(0) S(0) S(0) S(0) S(0) S(0){none} -> P(sum)"
    sent = f"S(0) S(0) S(0) S(0) S(0) S(0) S(0) S(0){none} -> S(0)"
    normal_weights = quantized(block=32, k=2, normalize_routing_weights=1)
    assert offered(normal_weights) == {whole, tokens, features, experts, sent}
    assert offered(quantized(block=32, k=2)) == {whole, tokens, features}
    assert offered(quantized(block=32, k=2, points=True)) == {whole, tokens}  # half bytes


@pytest.mark.parametrize("mesh", [(2,), (4,), (2, 2), (3,), (6,)])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("fused", [0, 1])
def test_quantized_features_split_inside_of_blocks(
    mesh: tuple[int, ...], bits: int, fused: int
) -> None:
    """Of three blocks of 64 features, 2 ranks have one and a half, 4 ranks three quarters."""
    case = quantized(block=64, wide=192, bits=bits, fused=fused, hidden=64, k=2)
    report = check(case, mesh, rtol=1e-2, atol=1e-2)
    split = ",".join(["S({})"] * len(mesh))
    rows, columns, sums = split.format(1, 1), split.format(2, 2), ",".join(["P(sum)"] * len(mesh))
    whole = ",".join(["R"] * len(mesh))
    none = f" {whole}" * 7
    assert (
        f"{whole} {whole} {rows} {rows} {rows} {columns} {whole} {sums}{none} -> {sums}"
        in report.offered
    )
    points = quantized(block=64, wide=192, bits=bits, points=True, hidden=64)
    assert all("S(2)" not in text for text in offered(points))


def test_blocks_that_most_ranks_divide_are_split_with_their_scales() -> None:
    found = offered(quantized(block=32, wide=64))
    assert any("S(2) S(2) P(sum)" in text for text in found)


@pytest.mark.parametrize("mesh", MESHES)
def test_weights_of_their_own(mesh: tuple[int, ...]) -> None:
    check(quantized(weights=True, k=2, tokens=(4,)), mesh, rtol=1e-2, atol=1e-2)


@examples(40)
@given(
    mesh=st.sampled_from(MESHES),
    k=st.sampled_from([1, 2]),
    tokens=st.sampled_from([(8,), (4, 2)]),
    bits=st.sampled_from([4, 8]),
    block=st.sampled_from([0, 16, 32]),
    biases=st.booleans(),
    points=st.booleans(),
    weights=st.booleans(),
    fused=st.sampled_from([0, 1]),
    normalize=st.booleans(),
)
def test_any_quantized_mixture(
    mesh: tuple[int, ...], k: int, tokens: tuple[int, ...], bits: int, block: int, biases: bool,
    points: bool, weights: bool, fused: int, normalize: bool,
) -> None:  # fmt: skip
    case = quantized(
        tokens=tokens, bits=bits, block=block, biases=biases, points=points, weights=weights,
        fused=fused, k=k, normalize_routing_weights=int(normalize),
    )  # fmt: skip
    check(case, mesh, rtol=1e-2, atol=1e-2)


def test_work() -> None:
    assert check(mixture(k=2), (2,)).flops == 2 * 6 * 2 * 2 * HIDDEN * WIDE
    assert check(mixture(k=2, fused=1), (2,)).flops == 2 * 6 * 2 * 3 * HIDDEN * WIDE
    assert check(quantized(block=32), (2,)).flops == 2 * 6 * 2 * 32 * 64
