"""Quantized products: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, Report, check, normal, offered

from tensoropt.compiler.sharding.proof.onnx_node import Array
from tensoropt.runtime.layout.mesh import Mesh

MESHES = [(2,), (4,), (2, 2)]
RUNTIME = "com.microsoft"


def whole(*shape: int, dtype: Any = np.uint8, seed: int = 0) -> Array:
    """Return whole numbers of all values that ``dtype`` has."""
    limits, rng = np.iinfo(dtype), np.random.default_rng([seed, *shape])
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def activations(*shape: int) -> Array:
    """Return uint8 of 7 bits.

    Processors without VNNI add pairs of products with int8 in 16 bits, see docs/checking.md.
    """
    return whole(*shape) // 2


def scale(*shape: int, seed: int = 0) -> Array:
    return np.asarray(normal(*shape, seed=seed) ** 2 + 0.1, np.float32)


def test_parts_of_an_integer_sum_add_up() -> None:
    case = Case("MatMulInteger", [whole(4, 6), whole(6, 8), np.uint8(3), whole(8)])
    operands = [*case.operands[:2], np.array(3, np.uint8), whole(8)]
    assert offered(replace(case, operands=operands)) == {
        "R R R R -> R",
        "S(0) R R R -> S(0)",
        "R S(1) R S(0) -> S(1)",
        "S(1) S(0) R R -> P(sum)",
    }


@examples(25)
@given(
    mesh=st.sampled_from(MESHES),
    shapes=st.sampled_from(
        [((4, 8), (8, 4)), ((2, 4, 8), (8, 4)), ((2, 4, 8), (2, 8, 4)), ((4, 2, 8), (1, 8, 6))]
    ),
    signed=st.booleans(),
    points=st.sampled_from([(), (0,), (0, 1), (None, 1)]),
)
def test_any_integer_product(
    mesh: tuple[int, ...], shapes: Any, signed: bool, points: tuple[int | None, ...]
) -> None:
    kind = np.int8 if signed else np.uint8
    operands: list[Any] = [activations(*shapes[0]), whole(*shapes[1], dtype=kind, seed=1)]
    each = shapes[1][-1] if len(shapes[1]) == 2 else 1  # the runtime wants the batch in others
    held = (np.array(7, np.uint8), whole(each, dtype=kind, seed=2))
    operands += [None if p is None else held[p] for p in points]
    check(Case("MatMulInteger", operands), mesh)


def test_a_rounded_sum_is_not_split() -> None:
    points = [np.array(5, np.uint8)] * 3
    scales = [np.array(0.1, np.float32)] * 3
    operands = [whole(4, 6), scales[0], points[0], whole(6, 8), scales[1], points[1]]
    found = offered(Case("QLinearMatMul", [*operands, scales[2], points[2]]))
    rest = " R R"
    assert found == {
        f"R R R R R R{rest} -> R",
        f"S(0) R R R R R{rest} -> S(0)",
        f"R R R S(1) R R{rest} -> S(1)",
    }


@pytest.mark.parametrize("mesh", MESHES)
def test_rounded_columns_have_their_own_scales(mesh: tuple[int, ...]) -> None:
    operands = [activations(4, 8), scale(), np.array(9, np.uint8), whole(8, 4, dtype=np.int8)]
    operands += [scale(4), np.zeros(4, np.int8), np.array(30, np.float32), np.array(128, np.uint8)]
    report = check(Case("QLinearMatMul", operands), mesh)
    assert any("S(1)" in text and "S(0) S(0)" in text for text in report.offered) or len(mesh) > 1


@examples(25)
@given(
    mesh=st.sampled_from(MESHES),
    rows=st.sampled_from([(4,), (2, 4)]),
    each=st.booleans(),
    points=st.booleans(),
    bias=st.booleans(),
)
def test_any_scaled_product(
    mesh: tuple[int, ...], rows: tuple[int, ...], each: bool, points: bool, bias: bool
) -> None:
    count = 4 if each else 1
    operands = [whole(*rows, 8), whole(8, 4), scale(1), scale(count, seed=1)]
    operands += [whole(1, seed=2), whole(count, seed=3)] if points else [None, None]
    operands += [normal(4)] if bias else []
    check(Case("MatMulIntegerToFloat", operands, {}, 1, RUNTIME), mesh)


def test_a_dynamic_range_is_that_of_the_whole() -> None:
    operands = [normal(4, 8), whole(8, 4), scale(4), None, normal(4)]
    assert offered(Case("DynamicQuantizeMatMul", operands, {}, 1, RUNTIME)) == {
        "R R R R R -> R",
        "R S(1) S(0) R S(0) -> S(1)",
    }


@examples(25)
@given(
    mesh=st.sampled_from(MESHES),
    shape=st.lists(st.sampled_from([1, 2, 4]), min_size=0, max_size=3),
    shift=st.sampled_from([-9.0, 0.0, 9.0]),
    size=st.sampled_from([0.0, 1.0, 50.0]),
)
def test_a_range_is_reduced_over_all_ranks(
    mesh: tuple[int, ...], shape: list[int], shift: float, size: float
) -> None:
    x = np.asarray(normal(*shape) * size + shift, np.float32)
    check(Case("DynamicQuantizeLinear", [x], results=(True,) * 3), mesh)


def test_a_range_is_priced() -> None:
    report = check(Case("DynamicQuantizeLinear", [normal(4, 6)], results=(True,) * 3), (2,))
    assert report.offered == {"R -> R R R", "S(0) -> S(0) R R", "S(1) -> S(1) R R"}
    assert report.rule.inner[0].item_bytes == 4


def nbits(
    columns: int = 8, blocks: int = 4, *, rows: tuple[int, ...] = (4,), width: int = 4,
    points: str = "", flat: bool = False, bias: bool = False, level: int = 0, size: int = 16,
    order: bool = False,
) -> Case:  # fmt: skip
    """Return a product with packed weights, ``blocks`` blocks of ``size`` elements per column."""
    scales, packed = scale(columns, blocks), -(-blocks * width // 8)
    zero = whole(columns, packed, seed=4) if points == "packed" else None
    zero = normal(columns, blocks, seed=5) if points == "plain" else zero
    if flat:
        scales, zero = scales.reshape(-1), zero if zero is None else zero.reshape(-1)
    weight = whole(columns, blocks, size * width // 8, seed=6)
    groups = np.random.default_rng(0).permutation(blocks * size) // size
    index = groups.astype(np.int32) if order else None
    operands = [normal(*rows, blocks * size), weight, scales, zero, index]
    attributes = {"K": blocks * size, "N": columns, "bits": width, "block_size": size}
    attributes |= {"accuracy_level": level} if level else {}
    return Case(
        "MatMulNBits", [*operands, normal(columns) if bias else None], attributes, 1, RUNTIME
    )


def test_packed_weights_split_by_columns_and_blocks() -> None:
    assert offered(nbits(blocks=16, points="packed", bias=True)) == {
        "R R R R R R -> R",
        "R S(0) S(0) S(0) R S(0) -> S(1)",
        "S(1) S(1) S(1) S(1) R P(sum) -> P(sum)",
        "S(0) R R R R R -> S(0)",
        "P(sum) R R R R P(sum) -> P(sum)",
    }


def test_zero_points_that_share_bytes_are_whole() -> None:
    whole_points, own_points = "S(1) S(1) S(1) R R R -> P(sum)", "S(1) S(1) S(1) S(1) R R -> P(sum)"
    assert whole_points in offered(nbits(blocks=2, points="packed"))
    assert own_points in offered(nbits(blocks=16, points="packed"))
    assert own_points in offered(nbits(blocks=2, points="packed", width=8))


def test_blocks_with_flat_scales_or_indices_stay_together() -> None:
    for case in (nbits(flat=True), nbits(order=True), nbits(order=True, points="packed")):
        assert not any("S(1) S(1)" in text for text in offered(case))
    assert "R S(0) S(0) R R R -> S(1)" in offered(nbits(flat=True))
    assert "R S(0) S(0) R R R -> S(1)" in offered(nbits(order=True))


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize(
    "weights", [(4, ""), (4, "packed"), (4, "plain"), (8, "packed"), (2, "packed")]
)
def test_uneven_blocks(ranks: int, weights: tuple[int, str]) -> None:
    width, points = weights
    for blocks in (3, 7, 11, 29):
        case = nbits(4, blocks, rows=(2,), width=width, points=points, bias=True)
        check(case, (ranks,), rtol=1e-3, atol=1e-3)


def test_a_projection_of_231_blocks_on_any_ranks() -> None:
    case = nbits(4, 231, rows=(1,), points="packed")
    for ranks in (2, 3, 4, 5, 6, 7, 8):
        found = check(case, (ranks,), rtol=1e-3, atol=1e-3, opens=False).offered
        assert "S(1) S(1) S(1) R R R -> P(sum)" in found


def test_uneven_blocks_are_exchanged_at_a_price() -> None:
    even, uneven = (check(nbits(blocks=n, rows=(3,)), (2,)) for n in (4, 5))

    def steps(report: Report) -> list[tuple[str, int]]:
        [strategy] = [s for s in report.tried if s.axes_of(1)]
        inner = report.rule.inner_steps(strategy, Mesh((2,)))
        return [(kind, size) for kind, _, size in inner]

    assert steps(even) == []
    assert steps(uneven) == [("collective_permute", 3 * 16 * 4), ("copy", 3 * 3 * 16 * 4)]


def test_a_quantized_left_side_is_not_linear() -> None:
    assert not any("P(sum) R" in text for text in offered(nbits(level=4)))


@examples(40)
@given(
    mesh=st.sampled_from(MESHES),
    columns=st.sampled_from([4, 6, 8]),
    blocks=st.sampled_from([1, 2, 3, 4, 16]),
    rows=st.sampled_from([(4,), (2, 2), (1,)]),
    weights=st.sampled_from([(4, ""), (4, "packed"), (4, "plain"), (8, ""), (8, "packed")]),
    flat=st.booleans(),
    bias=st.booleans(),
    level=st.sampled_from([0, 4]),
)
def test_any_packed_product(
    mesh: tuple[int, ...], columns: int, blocks: int, rows: tuple[int, ...],
    weights: tuple[int, str], flat: bool, bias: bool, level: int,
) -> None:  # fmt: skip
    width, points = weights
    case = nbits(columns, blocks, rows=rows, width=width, points=points, flat=flat, bias=bias,
                 level=level)  # fmt: skip
    check(case, mesh, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["QLinearAdd", "QLinearMul"])
def test_quantized_sums_broadcast(name: str) -> None:
    held = [scale(seed=1), np.array(3, np.uint8)]
    operands = [whole(4, 6), *held, whole(6, seed=1), *held, *held]
    assert offered(Case(name, operands, {}, 1, RUNTIME)) == {
        "R R R R R R R R -> R",
        "S(0) R R R R R R R -> S(0)",
        "S(1) R R S(0) R R R R -> S(1)",
    }


@pytest.mark.parametrize("name", ["QLinearLeakyRelu", "QLinearSigmoid"])
def test_quantized_activations(name: str) -> None:
    held = [scale(), np.array(3, np.uint8)]
    found = offered(Case(name, [whole(4, 6), *held, *held], {}, 1, RUNTIME))
    assert found == {"R R R R R -> R", "S(0) R R R R -> S(0)", "S(1) R R R R -> S(1)"}


def test_work() -> None:
    assert check(nbits(rows=(2, 3)), (2,)).flops == 2 * 6 * 8 * 64
    assert check(Case("MatMulInteger", [whole(4, 6), whole(6, 8)]), (2,)).flops == 2 * 4 * 6 * 8


def convolution(groups: int, *, each: bool = False, bias: bool = False, pads: int = 1) -> Case:
    """Return QLinearConv of 4 channels to 8, in groups."""
    weight = whole(8, 4 // groups, 3, 3, dtype=np.int8)
    count = (8,) if each else ()
    operands = [activations(2, 4, 6, 6), scale(), np.array(7, np.uint8), weight, scale(*count)]
    operands += [np.zeros(count, np.int8), np.array(90, np.float32), np.array(128, np.uint8)]
    operands += [whole(8, dtype=np.int16).astype(np.int32)] if bias else []
    return Case("QLinearConv", operands, {"group": groups, "pads": [pads] * 4})


def test_rounded_convolution_splits_batch_and_channels_of_the_result() -> None:
    rest = "R R R"
    assert offered(convolution(1, each=True, bias=True)) == {
        f"R R R R R R {rest} -> R",
        f"S(0) R R R R R {rest} -> S(0)",
        "R R R S(0) S(0) S(0) R R S(0) -> S(1)",
    }
    assert "S(1) R R S(0) R R R R -> S(1)" in offered(convolution(4))


@examples(20)
@given(
    mesh=st.sampled_from(MESHES),
    groups=st.sampled_from([1, 2, 4]),
    each=st.booleans(),
    bias=st.booleans(),
    integer=st.booleans(),
)
def test_any_quantized_convolution(
    mesh: tuple[int, ...], groups: int, each: bool, bias: bool, integer: bool
) -> None:
    case = convolution(groups, each=each, bias=bias)
    if integer:
        held = case.operands
        operands = [held[0], whole(8, 4 // groups, 3, 3), held[2], np.array(3, np.uint8)]
        case = Case("ConvInteger", operands, case.attributes)
    check(case, mesh)


def test_parts_of_an_integer_convolution_add_up() -> None:
    operands = [whole(2, 4, 6, 6), whole(8, 4, 3, 3), np.array(7, np.uint8)]
    case = Case("ConvInteger", operands, {"pads": [1, 1, 1, 1]})
    assert "S(1) S(1) R -> P(sum)" in offered(case)


@examples(20)
@given(
    mesh=st.sampled_from(MESHES),
    flips=st.tuples(st.booleans(), st.booleans()),
    each=st.booleans(),
    bias=st.sampled_from([None, (4,), (8, 1), (8, 4), (1, 4)]),
    rounded=st.booleans(),
)
def test_any_quantized_gemm(
    mesh: tuple[int, ...], flips: tuple[bool, bool], each: bool, bias: Any, rounded: bool
) -> None:
    shapes = [(8, 6), (6, 4)]
    a, b = (shape[::-1] if flip else shape for shape, flip in zip(shapes, flips, strict=True))
    count = (4,) if each else ()
    operands = [whole(*a), scale(), np.array(3, np.uint8), whole(*b), scale(*count)]
    operands += [np.full(count, 7, np.uint8)]
    operands += [None if bias is None else whole(*bias, dtype=np.int16).astype(np.int32)]
    operands += [np.array(90, np.float32), np.array(128, np.uint8)] if rounded else []
    attributes = {"transA": int(flips[0]), "transB": int(flips[1])}
    check(Case("QGemm", operands, attributes, 1, RUNTIME), mesh)


def test_quantized_gemm_splits_rows_and_columns() -> None:
    point = np.array(3, np.uint8)
    operands = [whole(8, 6), scale(), point, whole(6, 4), scale(4), np.full(4, 7, np.uint8)]
    assert offered(Case("QGemm", [*operands, whole(4, dtype=np.int32) // 999], {}, 1, RUNTIME)) == {
        "R R R R R R R -> R",
        "S(0) R R R R R R -> S(0)",
        "R R R S(1) S(0) S(0) S(0) -> S(1)",
    }


def test_quantized_averages_split_batch_and_channels() -> None:
    held = [scale(), np.array(3, np.uint8), scale(seed=1), np.array(9, np.uint8)]
    expected = {"R R R R R -> R", "S(0) R R R R -> S(0)", "S(1) R R R R -> S(1)"}
    images = [whole(2, 4, 6, 6), *held]
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    assert offered(Case("QLinearGlobalAveragePool", images, {}, 1, RUNTIME)) == expected
    assert offered(Case("QLinearAveragePool", images, window, 1, RUNTIME)) == expected


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("mask", [None, (4,), (4, 5), (8,)])
@pytest.mark.parametrize("past", [False, True])
def test_quantized_attention_splits_its_batch(
    mesh: tuple[int, ...], mask: tuple[int, ...] | None, past: bool
) -> None:
    points = [np.array(120, np.uint8), np.array(128, np.uint8)]
    scales = np.array(0.02, np.float32), np.array(0.01, np.float32)
    operands = [whole(4, 5, 16), whole(16, 48), normal(48), *scales]
    length = None if mask is None or past else np.full(mask, 5, np.int32)
    operands += [length, *points, normal(2, 4, 4, 3, 4) if past else None]
    attributes = {"num_heads": 4} | ({"unidirectional": 1} if past else {})
    case = Case("QAttention", operands, attributes, 1, RUNTIME, results=(True, past))
    report = check(case, mesh, rtol=1e-3, atol=1e-3)
    split = any(strategy.axes_of(0) for strategy in report.tried)
    assert split == (length is None or mask != (8,))
    assert report.flops == (2 * 4 * 5 * 16 * 48 if split else 4 * 5 * 16)


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("size", [16, 32, 64])
def test_four_bit_floats_split_by_columns_of_whole_blocks(mesh: tuple[int, ...], size: int) -> None:
    operands = [normal(4, 32), whole(8 * 16), scale(8 * 32 // size)]
    attributes = {"K": 32, "N": 8, "block_size": size, "quant_type": 1}
    case = Case("MatMulBnb4", operands, attributes, 1, RUNTIME)
    found = check(case, mesh, rtol=1e-3, atol=1e-3).offered
    if mesh == (2,):
        assert ("R S(0) S(0) -> S(1)" in found) == (size < 64)
        assert {"S(0) R R -> S(0)", "P(sum) R R -> P(sum)"} <= found


def test_quantized_parts_choices_and_probabilities() -> None:
    point, one = np.array(3, np.uint8), scale(seed=1)
    joined = [one, point, whole(2, 3, 4), one, point, whole(2, 5, 4), scale(), point]
    assert offered(Case("QLinearConcat", joined, {"axis": 1}, 1, RUNTIME)) == {
        "R R R R R R R R -> R",
        "R R S(0) R R S(0) R R -> S(0)",
        "R R S(2) R R S(2) R R -> S(2)",
    }
    chosen = [whole(4, 6) > 99, whole(4, 6), one, point, whole(6, seed=1), one, point, one, point]
    assert "S(1) S(1) R R S(0) R R R R -> S(1)" in offered(
        Case("QLinearWhere", chosen, {}, 1, RUNTIME)
    )
    scores = [whole(2, 4, 4), one, point, np.array(1 / 256, np.float32), np.array(0, np.uint8)]
    for opset, dims in ((13, (0, 2)), (11, (0,))):
        case = Case("QLinearSoftmax", scores, {"axis": 1, "opset": opset}, 1, RUNTIME)
        splits = {f"S({dim}) R R R R -> S({dim})" for dim in dims}
        assert offered(case) == {"R R R R R -> R"} | splits
