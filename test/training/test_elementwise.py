"""Gradients of arithmetic and conversions: broadcasting, ties, bounds, constant exponents."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from training.harness import Vjp, check_node, node_model, normal, positive, spaced

SHAPES = [((3, 4), (3, 4)), ((2, 3, 4), (3, 1)), ((4,), (2, 1, 4)), ((), (2, 3)), ((2, 3), (1,))]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("Add", lambda a, b: a + b),
        ("Sub", lambda a, b: a - b),
        ("Mul", lambda a, b: a * b),
        ("Div", lambda a, b: a / b),
        ("Pow", lambda a, b: a**b),
        ("Max", torch.maximum),
        ("Min", torch.minimum),
    ],
)
def test_two_operands(name: str, function: Any, shapes: tuple[Any, Any]) -> None:
    a, b = shapes
    check_node(name, [positive(*a), positive(*b, seed=1)], torch=function)


@pytest.mark.parametrize("name", ["Sum", "Mean", "Max", "Min"])
def test_many_operands(name: str) -> None:
    operands = [spaced(2, 3), spaced(3, seed=1) + 0.013, spaced(2, 1, seed=2) + 0.027]

    def function(*parts: Any) -> Any:
        held = torch.stack(torch.broadcast_tensors(*parts))
        by_name = {
            "Sum": held.sum(0),
            "Mean": held.mean(0),
            "Max": held.amax(0),
            "Min": held.amin(0),
        }
        return by_name[name]

    check_node(name, operands, torch=function)
    check_node(name, operands[:1], torch=lambda x: x)


def test_equal_operands_share() -> None:
    x = np.array([1.0, 2.0, 3.0])
    check_node("Max", [x, np.array([1.0, 1.0, 4.0])], torch=torch.maximum, differences=False)


@pytest.mark.parametrize("name", ["Max", "Min"])
def test_a_narrow_operand_that_was_cast_takes_the_gradient(name: str) -> None:
    """ONNX Runtime has no such ops in float16: it casts back, and drops both casts."""
    helper = onnx.helper
    nodes = [
        helper.make_node("Cast", ["mask"], ["narrow"], to=onnx.TensorProto.FLOAT16),
        helper.make_node(name, ["narrow", "low"], ["y"], name=name),
    ]
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info("mask", single, [3, 50]),
        helper.make_tensor_value_info("low", half, [50]),
    ]
    graph = helper.make_graph(nodes, "node", inputs, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    vjp = Vjp(model)
    mask, low = normal(3, 50).astype(np.float32), normal(50, seed=1).astype(np.float16)
    dy = normal(3, 50, seed=2).astype(np.float16)
    found = vjp.run({"mask": mask, "low": low}, {"y": dy}).gradients
    better = mask > low if name == "Max" else mask < low
    assert found["mask"] is not None
    np.testing.assert_array_equal(found["mask"], np.where(better, dy, 0))


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0, 3.0, -1.0, 2.5])
def test_constant_exponents(exponent: float) -> None:
    operands = [positive(3, 4), np.array(exponent)]
    vjp = check_node("Pow", operands, literals={1}, torch=lambda a, b: a**b)
    assert vjp.ops.count("Pow") == 1 + (exponent not in (0.0, 0.5, 1.0, 2.0))


def test_powers_of_zero_and_of_negative_numbers() -> None:
    a, b = np.array([0.0, 0.0, -1.5, -2.0]), np.array([0.0, 2.0, 2.0, 3.0])
    check_node("Pow", [a, b.astype(np.int64)], torch=lambda a, b: a**b, differences=False)
    check_node("Pow", [a[:2], b[:2]], torch=lambda a, b: a**b, differences=False)


def test_exponents_of_another_type() -> None:
    check_node("Pow", [positive(3), positive(3, seed=1, dtype=np.float32)], torch=lambda a, b: a**b,
               rtol=1e-6, differences=False)  # fmt: skip


@pytest.mark.parametrize("shapes", [((2, 3), (2, 3)), ((3,), (2, 1)), ((), (2, 3))])
def test_where(shapes: tuple[Any, Any]) -> None:
    condition = np.array([[True], [False]])
    operands = [condition, *(normal(*shape, seed=i) for i, shape in enumerate(shapes))]
    check_node("Where", operands, torch=torch.where)


@pytest.mark.parametrize("there", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("literals", [set(), {1, 2}])
def test_clip(there: tuple[bool, bool], literals: set[int]) -> None:
    bounds = [np.array(v) if held else None for v, held in zip((-0.77, 0.87), there, strict=True)]
    while bounds and bounds[-1] is None:
        bounds.pop()
    held = literals & {i + 1 for i, o in enumerate(bounds) if o is not None}

    def function(x: Any, low: Any = None, high: Any = None) -> Any:
        return x if low is None and high is None else torch.clamp(x, low, high)

    check_node("Clip", [spaced(4, 5), *bounds], literals=held, torch=function)


def test_mod() -> None:
    operands = [spaced(3, 4) * 3, positive(4)]
    check_node("Mod", operands, {"fmod": 1}, torch=torch.fmod)


def test_cast_narrows_what_the_forward_op_widened() -> None:
    to = {"to": onnx.TensorProto.DOUBLE}
    check_node("Cast", [normal(3, dtype=np.float32)], to, torch=lambda x: x)
    to = {"to": onnx.TensorProto.FLOAT16}
    check_node("Cast", [normal(3, dtype=np.float32)], to, torch=lambda x: x, differences=False)
    like = [normal(3, dtype=np.float32), normal(1)]
    check_node("CastLike", like, torch=lambda x, _: x)


@pytest.mark.parametrize("name", ["Floor", "Ceil", "Round", "Sign"])
def test_steps_have_no_slope(name: str) -> None:
    vjp = check_node(name, [spaced(20)])
    assert vjp.gradients == {"x0": None}


def test_only_what_is_wanted_is_computed() -> None:
    model = node_model("Div", [normal(3), positive(3)])
    assert Vjp(model, wanted=["x0"]).ops.count("Mul") == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_types(dtype: Any) -> None:
    for name in ("Add", "Mul", "Div"):
        operands = [positive(3, 4, dtype=dtype), positive(4, seed=1, dtype=dtype)]
        vjp = check_node(name, operands)
        assert f"tensor<4x{'f32' if dtype == np.float32 else 'f16'}>" in vjp.text
