"""Elementwise operators: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

from tensoropt.compiler.sharding.proof.onnx_node import Array
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.compiler.sharding.rule.registry import registered, rule_for

MESHES = [(2,), (4,), (2, 2)]
SPLITS = {"R -> R", "S(0) -> S(0)", "S(1) -> S(1)"}
# fmt: off
UNARY = (
    "Abs", "Acos", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Clip", "Cos", "Cosh",
    "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN",
    "LeakyRelu", "Log", "Mish", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid",
    "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu",
    "com.microsoft.Gelu", "com.microsoft.QuickGelu",
)
# fmt: on
COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")


def case_of(name: str, operands: list[Array | None], **more: Any) -> Case:
    domain, _, op_type = name.rpartition(".")
    more.setdefault("version", 1 if domain else 20)
    return Case(op_type, operands, domain=domain, **more)


def within_one(*shape: int, seed: int = 0) -> Array:
    """Values in (0, 1), where every function is defined."""
    return np.asarray(1 / (1 + np.exp(-normal(*shape, seed=seed))), np.float32)


def whole(*shape: int, dtype: Any = np.int64, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).integers(1, 6, shape).astype(dtype)


@pytest.mark.parametrize("name", UNARY)
def test_unary_splits_every_dimension(name: str) -> None:
    assert offered(case_of(name, [within_one(4, 6)])) == SPLITS


@pytest.mark.parametrize("mesh", MESHES)
def test_unary_on_larger_meshes(mesh: tuple[int, ...]) -> None:
    report = check(case_of("Tanh", [normal(4, 3, 8)]), mesh)
    assert ("S(0),S(2) -> S(0),S(2)" in report.offered) == (len(mesh) == 2)
    assert report.flops == 8 * 4 * 3 * 8


@pytest.mark.parametrize("name", ["Not", "BitwiseNot"])
def test_unary_on_flags_and_bits(name: str) -> None:
    held = whole(4, 6) > 2 if name == "Not" else whole(4, 6)
    assert offered(case_of(name, [held])) == SPLITS


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("name", ["Neg", "Identity"])
def test_partial_sums_pass_where_linear(name: str, dtype: Any) -> None:
    found = offered(case_of(name, [whole(4, 6, dtype=dtype)]))
    assert found == SPLITS | {"P(sum) -> P(sum)"}


def test_flags_do_not_add_up() -> None:
    assert offered(case_of("Identity", [whole(4, 6) > 2])) == SPLITS


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("name", ["Add", "Sub"])
def test_sums_take_partial_sums_together(name: str, dtype: Any) -> None:
    case = case_of(name, [whole(4, 6, dtype=dtype), whole(6, dtype=dtype, seed=1)])
    assert offered(case) == {
        "R R -> R",
        "S(0) R -> S(0)",
        "S(1) S(0) -> S(1)",
        "P(sum) P(sum) -> P(sum)",
    }


@pytest.mark.parametrize("name", ["Sum", "Mean", "Min", "Max"])
@pytest.mark.parametrize("count", [1, 3])
def test_any_number_of_operands(name: str, count: int) -> None:
    report = check(case_of(name, [normal(4, 6, seed=i) for i in range(count)]), (2, 2))
    partial = " ".join(["P(sum),R"] * count) + " -> P(sum),R"
    assert (partial in report.offered) == (name in ("Sum", "Mean"))
    assert " ".join(["S(1),S(0)"] * count) + " -> S(1),S(0)" in report.offered


def test_a_product_is_linear_in_each_operand() -> None:
    report = check(case_of("Mul", [normal(4, 6), normal(4, 1, seed=1)]), (2, 2))
    assert {
        "P(sum),R R,R -> P(sum),R",
        "R,R P(sum),R -> P(sum),R",
        "P(sum),R R,P(sum) -> P(sum),P(sum)",
        "S(0),S(1) S(0),R -> S(0),S(1)",
    } <= report.offered
    assert "P(sum),R P(sum),R -> P(sum),R" not in report.offered


def test_a_quotient_is_linear_in_floats_above_a_line_that_is_not_zero() -> None:
    divisor = np.array(2, np.float32)
    floats = offered(case_of("Div", [normal(4, 6), divisor], literals=frozenset({1})))
    zero = offered(case_of("Div", [normal(4, 6), np.array(0, np.float32)], literals=frozenset({1})))
    unknown = offered(case_of("Div", [normal(4, 6), within_one(4, 6)]))
    integers = offered(case_of("Div", [whole(4, 6), whole(4, 6, seed=1)]))
    assert "P(sum) R -> P(sum)" in floats
    assert not any("P" in text for found in (zero, unknown, integers) for text in found)


@pytest.mark.parametrize("name", ["Pow", "Mod", "PRelu", *COMPARISONS])
def test_binary_that_is_not_linear(name: str) -> None:
    attributes = {"fmod": 1} if name == "Mod" else {}
    case = case_of(name, [within_one(4, 6), within_one(6, seed=1)], attributes=attributes)
    assert offered(case) == {"R R -> R", "S(0) R -> S(0)", "S(1) S(0) -> S(1)"}


@pytest.mark.parametrize("name", ["And", "Or", "Xor"])
def test_logic(name: str) -> None:
    case = case_of(name, [whole(4, 6) > 2, whole(1, 6) > 3])
    assert offered(case) == {"R R -> R", "S(0) R -> S(0)", "S(1) S(1) -> S(1)"}


@pytest.mark.parametrize("name", ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift"])
def test_bits(name: str) -> None:
    attributes = {"direction": "LEFT"} if name == "BitShift" else {}
    operands: list[Array | None] = [whole(4, 6, dtype=np.uint8), whole(6, dtype=np.uint8)]
    assert len(offered(case_of(name, operands, attributes=attributes))) == 3


@pytest.mark.parametrize("name", ["com.microsoft.BiasGelu", "com.microsoft.FastGelu"])
def test_fused_bias(name: str) -> None:
    found = offered(case_of(name, [normal(4, 6), normal(6, seed=1)]))
    assert found == {"R R -> R", "S(0) R -> S(0)", "S(1) S(0) -> S(1)"}
    if name.endswith("FastGelu"):
        assert offered(case_of(name, [normal(4, 6)])) == SPLITS


def test_where_takes_partial_sums_in_both_branches() -> None:
    case = case_of("Where", [normal(4, 1) > 0, normal(4, 6), normal(6, seed=1)])
    assert offered(case) == {
        "R R R -> R",
        "S(0) S(0) R -> S(0)",
        "R S(1) S(0) -> S(1)",
        "R P(sum) P(sum) -> P(sum)",
    }
    flags = TensorInfo((4, 6), "bool", 1)
    assert not rule_for(OpInfo("Where", 20, (flags,) * 3, (flags,))).linear


@pytest.mark.parametrize(
    ("source", "number", "exact"),
    [
        (np.float32, 1, True),
        (np.float32, 11, True),
        (np.float16, 1, True),
        (np.float32, 10, False),
        (np.float32, 7, False),
        (np.int32, 7, False),
        (np.int64, 1, False),
    ],
)
def test_casts_that_are_exact_are_linear(source: Any, number: int, exact: bool) -> None:
    case = case_of("Cast", [whole(4, 6, dtype=source)], attributes={"to": number})
    rtol = 1e-2 if source == np.float16 else 1e-6  # cutting into partial sums rounds
    assert ("P(sum) -> P(sum)" in check(case, (2,), rtol=rtol).offered) == exact


def test_cast_like_wants_only_the_type() -> None:
    case = case_of("CastLike", [normal(4, 6), np.ones(3, np.float64)])
    assert offered(case) == {
        "R R -> R",
        "S(0) R -> S(0)",
        "S(1) R -> S(1)",
        "P(sum) R -> P(sum)",
    }


@pytest.mark.parametrize(
    ("minimum", "maximum"), [(0.0, 1.0), (None, 0.5), (0.25, None), (None, None)]
)
def test_clip_with_omitted_bounds(minimum: float | None, maximum: float | None) -> None:
    bounds = [None if b is None else np.array(b, np.float32) for b in (minimum, maximum)]
    found = offered(case_of("Clip", [normal(4, 6), *bounds]))
    assert found == {"R R R -> R", "S(0) R R -> S(0)", "S(1) R R -> S(1)"}


def test_dropout_in_inference() -> None:
    plain = case_of("Dropout", [normal(4, 6)])
    assert offered(plain) == SPLITS | {"P(sum) -> P(sum)"}
    masked = case_of("Dropout", [normal(4, 6)], results=(True, True))
    assert offered(masked) == {"R -> R R", "S(0) -> S(0) S(0)", "S(1) -> S(1) S(1)"}
    old = case_of("Dropout", [normal(4, 6)], version=9, results=(True, False))
    assert "S(1) -> S(1) R" in offered(old)


@pytest.mark.parametrize(("literal", "count"), [(True, 4), (False, 1)])
def test_dropout_that_may_train_is_replicated(literal: bool, count: int) -> None:
    held = frozenset({2}) if literal else frozenset[int]()
    operands: list[Array | None] = [normal(4, 6), np.array(0.5, np.float32), np.array(False)]
    assert len(offered(case_of("Dropout", operands, literals=held))) == count


@pytest.mark.parametrize("name", ["Add", "Mul"])
def test_scalars_and_dimensions_of_one(name: str) -> None:
    case = case_of(name, [normal(1, 6), np.array(2, np.float32)])
    splits = {text for text in offered(case) if "S" in text}
    assert splits == {"S(1) R -> S(1)"}


def test_a_symbolic_dimension_may_broadcast() -> None:
    hidden = frozenset({(0, 0)})
    case = case_of("Add", [normal(4, 6), normal(4, 6, seed=1)], symbolic=hidden)
    assert offered(case) == {"R R -> R", "S(1) S(1) -> S(1)", "P(sum) P(sum) -> P(sum)"}
    both = frozenset({(0, 0), (1, 0)})
    case = case_of(
        "Add",
        [normal(4, 6), normal(4, 6, seed=1)],
        symbolic=both,
        symbolic_results=frozenset({(0, 0)}),
    )
    assert offered(case) == {"R R -> R", "S(1) S(1) -> S(1)", "P(sum) P(sum) -> P(sum)"}


def test_operands_aligned_by_an_attribute_are_declined() -> None:
    image, channels = TensorInfo((2, 4, 4), "float32", 4), TensorInfo((4,), "float32", 4)
    for name, version, attributes in (("Add", 6, (("broadcast", 1),)), ("PRelu", 6, ())):
        info = OpInfo(name, version, (image, channels), (image,), attributes)
        assert not any(factor.can_split for factor in rule_for(info).factors)


def test_every_elementwise_operator_is_registered() -> None:
    assert set(UNARY) <= set(registered())


shapes = st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=0, max_size=4)


@examples(40)
@given(
    name=st.sampled_from(["Add", "Mul", "Sub", "Div", "Pow", "Less", "Where", "Max"]),
    shape=shapes,
    masks=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=3, max_size=3),
    drops=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    mesh=st.sampled_from(MESHES),
)
def test_broadcasting_of_any_shapes(
    name: str,
    shape: list[int],
    masks: list[list[bool]],
    drops: list[int],
    mesh: tuple[int, ...],
) -> None:
    count = 3 if name == "Where" else 2
    operands: list[Array | None] = [
        within_one(*stretched(shape, masks[i], drops[i]), seed=i) for i in range(count)
    ]
    if name == "Where":
        assert operands[0] is not None
        operands[0] = np.asarray(operands[0] > 0.5)
    check(case_of(name, operands), mesh, rtol=1e-3, atol=1e-4)


def stretched(shape: list[int], ones: list[bool], drop: int) -> list[int]:
    """Return a shape that broadcasts to ``shape``: some sizes 1, some leading ones left out."""
    sizes = [1 if one else size for size, one in zip(shape, ones, strict=False)]
    return sizes[min(drop, len(sizes)) :]
