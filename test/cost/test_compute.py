"""The roofline of an op."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensoropt.compiler.cost.compute import (
    measured_operator,
    op_time_s,
    work_of,
)
from tensoropt.compiler.cost.device import Device, load_device
from tensoropt.compiler.cost.measurements import Operator
from tensoropt.compiler.layout.rule import Factor, Rule, Strategy
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.compiler.sharding.rule.strategies import strategies
from tensoropt.runtime.layout.mesh import Mesh

DEVICE = replace(load_device("h200"), kernels={}, collectives={}, host_launch_s=None)
BANDWIDTH = DEVICE.memory_bandwidth_bytes_per_s
MESH = Mesh((2, 2))


def f32(*shape: int | None) -> TensorInfo:
    return TensorInfo(shape, "float32", 4)


def matmul(m: int | None, k: int, n: int, dtype: str = "float32") -> tuple[OpInfo, Rule]:
    a, b, c = (TensorInfo(s, dtype, 4) for s in ((m, k), (k, n), (m, n)))
    factors = (Factor(m), Factor(k, reduction="sum"), Factor(n))
    rule = Rule(factors, ((0, 1), (1, 2)), ((0, 2),), flops_per_point=2.0)
    return OpInfo("MatMul", 13, (a, b), (c,)), rule


def pick(rule: Rule, *roles: int | None) -> Strategy:
    return next(s for s in strategies(rule, MESH) if s.roles == roles)


def test_a_large_product_is_bound_by_arithmetic() -> None:
    info, rule = matmul(4096, 4096, 4096)
    rate = 0.6 * 494e12
    for roles, pieces in (((None, None), 1), ((0, None), 2), ((0, 2), 4), ((1, 1), 4)):
        expected = 2 * 4096**3 / pieces / rate + DEVICE.launch_overhead_s
        assert op_time_s(info, rule, pick(rule, *roles), MESH, DEVICE) == pytest.approx(expected)


def test_a_thin_product_is_bound_by_memory() -> None:
    info, rule = matmul(1, 4096, 4096)
    moved = 4 * (4096 + 4096 * 4096 / 2 + 4096 / 2)
    expected = moved / BANDWIDTH + DEVICE.launch_overhead_s
    strategy = pick(rule, 2, None)
    assert op_time_s(info, rule, strategy, MESH, DEVICE) == pytest.approx(expected)
    assert work_of(info, rule, strategy, MESH).bytes == moved


def test_the_type_of_the_operands_sets_the_rate() -> None:
    info, rule = matmul(4096, 4096, 4096, "float16")
    expected = 2 * 4096**3 / (0.6 * 989e12) + DEVICE.launch_overhead_s
    assert op_time_s(info, rule, pick(rule, None, None), MESH, DEVICE) == pytest.approx(expected)


def test_symbolic_dimensions_count_as_one() -> None:
    info, rule = matmul(None, 8, 16)
    strategy = pick(rule, 2, None)
    work = work_of(info, rule, strategy, MESH)
    assert (work.flops, work.bytes) == (2 * 8 * 16 / 2, 4 * (8 + 8 * 8 + 8))


def test_omitted_operands_and_results_move_nothing() -> None:
    info = OpInfo("Clip", 13, (f32(8), None), (f32(8), None))
    rule = Rule((Factor(8),), ((0,), ()), ((0,), ()))
    assert work_of(info, rule, pick(rule, 0, None), MESH).bytes == 2 * 16


def op(name: str, *operands: TensorInfo) -> float:
    info = OpInfo(name, 13, operands, (f32(4, 64),))
    rule = Rule((Factor(4), Factor(64)), tuple(() for _ in operands), ((0, 1),))
    return op_time_s(info, rule, pick(rule, None, None), MESH, DEVICE)


def test_removed_ops_are_free_and_views_are_a_launch() -> None:
    assert op("Constant") == op("Identity", f32(4, 64)) == 0.0
    assert op("Reshape", f32(1 << 20, 64)) == DEVICE.launch_overhead_s
    assert op("Transpose", f32(4, 64)) > DEVICE.launch_overhead_s


def test_a_lookup_reads_only_what_it_returns() -> None:
    moved = op("Gather", f32(1 << 20, 64), TensorInfo((4,), "int64", 8)) - DEVICE.launch_overhead_s
    assert moved == pytest.approx((2 * 4 * 64 * 4 + 4 * 8) / BANDWIDTH)


def test_a_lookup_of_quantized_rows_reads_their_scales_only() -> None:
    table = (TensorInfo((1 << 20, 32), "uint8", 1), TensorInfo((4,), "int64", 8), f32(1 << 20, 2))
    moved = op("com.microsoft.GatherBlockQuantized", *table) - DEVICE.launch_overhead_s
    assert moved == pytest.approx((3 * 4 * 64 * 4 + 4 * 8) / BANDWIDTH)


def with_measured(**operators: Operator) -> Device:
    return replace(DEVICE, operators={(name, "float32"): own for name, own in operators.items()})


def test_a_measured_operator_has_a_line_of_its_own() -> None:
    info, rule = matmul(64, 32, 16)
    device = with_measured(MatMul=Operator(1e-6, 2e-12, 3e-11))
    for roles, parts in (((None, None), (1, 1, 1)), ((0, 0), (4, 1, 4)), ((None, 2), (1, 2, 2))):
        strategy = pick(rule, *roles)
        sizes = zip((64 * 32, 32 * 16, 64 * 16), parts, strict=True)
        a, b, c = (size / part for size, part in sizes)
        flops = 2 * 64 * 32 * 16 / max(parts)
        expected = 1e-6 + 2e-12 * flops + 3e-11 * 4 * (a + b + c)
        assert op_time_s(info, rule, strategy, MESH, device) == pytest.approx(expected)


def test_what_was_measured_in_another_type_does_not_count() -> None:
    info, rule = matmul(64, 32, 16, "float16")
    device, strategy = with_measured(MatMul=Operator(1.0)), pick(rule, None, None)
    plain = op_time_s(info, rule, strategy, MESH, DEVICE)
    assert op_time_s(info, rule, strategy, MESH, device) == plain


@pytest.mark.parametrize(
    ("attributes", "name"),
    [((), "Gemm"), ((("transA", 0),), "Gemm"), ((("transA", 1),), "Gemm:transA")],
)
def test_an_attribute_may_part_measurements(
    attributes: tuple[tuple[str, int], ...], name: str
) -> None:
    info = OpInfo("Gemm", 13, (f32(8, 8), f32(8, 8)), (f32(8, 8),), attributes)
    rule = Rule((Factor(8), Factor(8)), ((0, 1), (0, 1)), ((0, 1),))
    assert work_of(info, rule, pick(rule, None, None), MESH).operator == name
    plain, special = Operator(1e-6), Operator(2e-6)
    both = with_measured(**{"Gemm": plain, "Gemm:transA": special})
    assert measured_operator(info, both) is (plain if name == "Gemm" else special)
    assert measured_operator(info, with_measured(Gemm=plain)) is plain  # better than nothing
    assert measured_operator(info, DEVICE) is None


def test_a_step_of_one_pass_costs_what_it_adds_to_it() -> None:
    """Mul(w, g) of an update reads w first; another step reads what it makes."""
    rule = Rule((Factor(8), Factor(6)), ((0, 1), (0, 1)), ((0, 1),))
    alone = OpInfo("Mul", 14, (f32(8, 6), f32(8, 6)), (f32(8, 6),))
    info, strategy = replace(alone, in_memory=(0,)), pick(rule, 0, None)
    assert work_of(info, rule, strategy, MESH).pass_bytes == 4 * 24
    assert work_of(replace(info, in_memory=(1, 2)), rule, strategy, MESH).pass_bytes == 2 * 4 * 24
    lines = {"tensoropt.Elementwise": Operator(0.0, 0.0, 1e-9), "Mul": Operator(1.0)}
    known = with_measured(**lines)
    assert op_time_s(info, rule, strategy, MESH, known) == pytest.approx(4 * 24 * 1e-9)
    assert measured_operator(info, known) is known.operators["tensoropt.Elementwise", "float32"]
    assert op_time_s(alone, rule, strategy, MESH, known) == 1.0
    by_itself = op_time_s(alone, rule, strategy, MESH, DEVICE)
    assert op_time_s(info, rule, strategy, MESH, DEVICE) == by_itself
