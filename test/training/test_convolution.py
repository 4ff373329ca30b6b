"""Gradients of Conv and ConvTranspose against PyTorch and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from training.flow import flow
from training.harness import Vjp, check_node, node_model, normal


def _torch(rank: int, *, transposed: bool = False, **options: Any) -> Any:
    from torch.nn import functional

    name = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
    operator = getattr(functional, name)
    return lambda *operands: operator(*operands, **options)


def narrow(*shape: int, seed: int = 0) -> Any:
    """Return float32 values: ONNX Runtime convolves nothing wider."""
    return normal(*shape, seed=seed, dtype=np.float32)


CASES = {
    "plain": ((2, 3, 7, 6), (4, 3, 3, 2), {}, {}),
    "line": ((2, 3, 9), (4, 3, 3), {"strides": [2], "pads": [1, 1]}, {"stride": 2, "padding": 1}),
    "volume": ((2, 2, 4, 5, 4), (3, 2, 2, 3, 2), {"strides": [1, 2, 1]}, {"stride": (1, 2, 1)}),
    "wide": ((2, 9, 7, 7), (4, 9, 3, 3), {"pads": [1] * 4}, {"padding": 1}),
    "many windows": ((2, 9, 12, 13), (4, 9, 3, 3), {"pads": [1] * 4}, {"padding": 1}),
    "strides": (
        (2, 8, 8, 9),
        (4, 8, 3, 3),
        {"strides": [2, 3], "pads": [1, 2, 1, 2]},
        {"stride": (2, 3), "padding": (1, 2)},
    ),
    "narrow strides": ((1, 3, 9, 10), (4, 3, 2, 3), {"strides": [3, 2]}, {"stride": (3, 2)}),
    "dilations": (
        (2, 8, 9, 8),
        (3, 8, 3, 2),
        {"dilations": [2, 3], "pads": [2, 1, 2, 1]},
        {"dilation": (2, 3), "padding": (2, 1)},
    ),
    "narrow dilations": (
        (2, 3, 9, 8),
        (3, 3, 3, 2),
        {"dilations": [2, 3], "strides": [2, 1]},
        {"dilation": (2, 3), "stride": (2, 1)},
    ),
    "points": ((2, 8, 4, 5), (6, 8, 1, 1), {}, {}),
    "strided points": ((2, 8, 5, 6), (6, 8, 1, 1), {"strides": [2, 2]}, {"stride": 2}),
    "groups": ((2, 6, 5, 5), (4, 3, 3, 3), {"group": 2, "pads": [1] * 4}, {"padding": 1}),
    "wide groups": ((2, 16, 5, 5), (6, 8, 3, 3), {"group": 2, "strides": [2, 2]}, {"stride": 2}),
    "depthwise": ((2, 5, 6, 6), (5, 1, 3, 3), {"group": 5, "pads": [1] * 4}, {"padding": 1}),
    "multiplied": ((2, 3, 6, 6), (6, 1, 3, 3), {"group": 3, "strides": [2, 2]}, {"stride": 2}),
    "one output": ((2, 6, 5), (3, 2, 2), {"group": 3}, {}),
    "far padding": ((1, 2, 4, 4), (2, 1, 2, 2), {"group": 2, "pads": [3] * 4}, {"padding": 3}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("bias", [True, False])
def test_conv(name: str, bias: bool) -> None:
    image, weight, attributes, options = CASES[name]
    operands = [narrow(*image), narrow(*weight, seed=1), *([narrow(weight[0])] if bias else [])]
    function = _torch(len(image) - 2, groups=attributes.get("group", 1), **options)
    check_node("Conv", operands, attributes, torch=function, differences=bias)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("channels", [3, 8])
def test_automatic_padding(mode: str, channels: int) -> None:
    operands = [narrow(1, channels, 7, 8), narrow(3, channels, 3, 4)]
    check_node("Conv", operands, {"auto_pad": mode, "strides": [2, 3]})


def test_uneven_padding() -> None:
    operands = [narrow(1, 2, 5, 6), narrow(2, 2, 3, 3)]
    check_node("Conv", operands, {"pads": [0, 2, 1, 0]})


BACK = {
    "plain": ((2, 3, 4, 5), (3, 4, 3, 2), {}, {}),
    "wide": ((2, 9, 4, 5), (9, 8, 3, 2), {"pads": [1, 0, 1, 0]}, {"padding": (1, 0)}),
    "line": ((2, 3, 5), (3, 2, 4), {"strides": [2], "pads": [1, 1]}, {"stride": 2, "padding": 1}),
    "volume": ((1, 2, 3, 2, 3), (2, 3, 2, 2, 2), {"strides": [2, 1, 2]}, {"stride": (2, 1, 2)}),
    "longer": (
        (2, 3, 4, 4),
        (3, 8, 3, 3),
        {"strides": [2, 3], "output_padding": [1, 2], "pads": [1] * 4},
        {"stride": (2, 3), "output_padding": (1, 2), "padding": 1},
    ),
    "dilations": ((2, 3, 4, 4), (3, 2, 2, 3), {"dilations": [2, 3]}, {"dilation": (2, 3)}),
    "groups": ((2, 4, 4, 4), (4, 3, 3, 3), {"group": 2, "strides": [2, 2]}, {"stride": 2}),
    "depthwise": ((2, 4, 4, 4), (4, 1, 3, 3), {"group": 4}, {}),
}


@pytest.mark.parametrize("name", BACK)
@pytest.mark.parametrize("bias", [True, False])
def test_conv_transpose(name: str, bias: bool) -> None:
    image, weight, attributes, options = BACK[name]
    groups = attributes.get("group", 1)
    operands = [narrow(*image), narrow(*weight, seed=1)]
    operands += [narrow(weight[1] * groups)] if bias else []
    function = _torch(len(image) - 2, transposed=True, groups=groups, **options)
    check_node("ConvTranspose", operands, attributes, torch=function, differences=bias)


@pytest.mark.parametrize(
    "attributes",
    [
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"auto_pad": "VALID", "strides": [2, 2]},
        {"output_shape": [8, 9], "strides": [2, 2]},
        {"output_shape": [8, 9], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    ],
)
def test_transpose_with_automatic_padding(attributes: dict[str, Any]) -> None:
    check_node("ConvTranspose", [narrow(1, 2, 4, 4), narrow(2, 3, 3, 4)], attributes)


def test_frozen_weights_cost_nothing() -> None:
    operands = [narrow(2, 8, 6, 6), narrow(4, 8, 3, 3)]
    found = check_node("Conv", operands, {"pads": [1] * 4}, literals={1})
    assert found.ops.count("ConvTranspose") == 1
    assert "MatMul" not in found.ops


def test_narrow_floats() -> None:
    operands = [normal(2, 8, 6, 6, dtype=np.float16), normal(4, 8, 3, 3, dtype=np.float16)]
    check_node("Conv", operands, torch=_torch(2))


SPLITS = {
    "products": ((4, 8, 6, 6), (6, 8, 3, 3), {"strides": [2, 2], "pads": [1] * 4}),
    "points": ((4, 8, 6, 6), (6, 8, 1, 1), {}),
    "convolution": ((4, 4, 6, 6), (6, 4, 3, 3), {"pads": [1] * 4}),
    "groups": ((4, 32, 5, 5), (4, 8, 3, 3), {"group": 4}),
    "depthwise": ((4, 4, 5, 5), (4, 1, 3, 3), {"group": 4}),
}


def _flow(name: str, **layouts: str) -> dict[str, set[str]]:
    image, weight, attributes = SPLITS[name]
    model = node_model("Conv", [narrow(*image), narrow(*weight), narrow(weight[0])], attributes)
    return flow(Vjp(model), layouts)


@pytest.mark.parametrize("name", SPLITS)
def test_a_split_batch_leaves_partial_sums(name: str) -> None:
    found = _flow(name, x0="S(0)", d_y0="S(0)")
    assert "S(0)" in found["g_x0"]
    assert "P(sum)" in found["g_x1"]
    assert "P(sum)" in found["g_x2"]


@pytest.mark.parametrize("name", ["products", "points", "convolution"])
def test_split_output_channels(name: str) -> None:
    found = _flow(name, x1="S(0)", x2="S(0)", d_y0="S(1)")
    assert "P(sum)" in found["g_x0"]
    assert "S(0)" in found["g_x1"]
    assert "S(0)" in found["g_x2"]


@pytest.mark.parametrize("name", ["products", "points", "convolution"])
def test_split_input_channels(name: str) -> None:
    found = _flow(name, x0="S(1)", x1="S(1)")
    assert "S(1)" in found["g_x0"]
    assert "S(1)" in found["g_x1"]


def test_split_groups() -> None:
    found = _flow("groups", x0="S(1)", x1="S(0)", x2="S(0)", d_y0="S(1)")
    assert "S(1)" in found["g_x0"]
    assert "S(0)" in found["g_x1"]
    assert "S(0)" in found["g_x2"]


def test_split_channels_of_a_transpose() -> None:
    model = node_model("ConvTranspose", [narrow(2, 8, 4, 4), narrow(8, 8, 3, 3)])
    vjp = Vjp(model)
    batch = flow(vjp, {"x0": "S(0)", "d_y0": "S(0)"})
    assert "S(0)" in batch["g_x0"]
    assert "P(sum)" in batch["g_x1"]
    outputs = flow(vjp, {"x1": "S(1)", "d_y0": "S(1)"})
    assert "P(sum)" in outputs["g_x0"]
    assert "S(1)" in outputs["g_x1"]
    inputs = flow(vjp, {"x0": "S(1)", "x1": "S(0)"})
    assert "S(1)" in inputs["g_x0"]
    assert "S(0)" in inputs["g_x1"]
