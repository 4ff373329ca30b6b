"""Gradients of pooling against PyTorch and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from training.flow import flow
from training.harness import Vjp, check_model, check_node, node_model, normal, positive, spaced

WINDOWS = {
    "tiles": ((2, 3, 6, 8), [2, 2], {"strides": [2, 2]}, {"stride": 2}),
    "overlap": (
        (2, 3, 7, 8),
        [3, 3],
        {"strides": [2, 2], "pads": [1] * 4},
        {"stride": 2, "padding": 1},
    ),
    "dense": ((2, 2, 6, 5), [3, 2], {}, {"stride": 1}),
    "rest": ((1, 2, 8, 9), [2, 3], {"strides": [3, 4]}, {"stride": (3, 4)}),
    "line": ((2, 3, 9), [3], {"strides": [2], "pads": [1, 1]}, {"stride": 2, "padding": 1}),
    "volume": ((1, 2, 4, 5, 4), [2, 3, 2], {"strides": [2, 1, 2]}, {"stride": (2, 1, 2)}),
    "ceil": (
        (2, 2, 6, 8),
        [3, 3],
        {"strides": [2, 2], "ceil_mode": 1},
        {"stride": 2, "ceil_mode": True},
    ),
    "ceil and padding": (
        (1, 2, 7, 9),
        [3, 4],
        {"strides": [3, 3], "ceil_mode": 1, "pads": [1] * 4},
        {"stride": 3, "ceil_mode": True, "padding": 1},
    ),
}


def _torch(kind: str, kernel: list[int], options: dict[str, Any]) -> Any:
    from torch.nn import functional

    operator = getattr(functional, f"{kind}_pool{len(kernel)}d")
    return lambda x: operator(x, kernel, **options)


@pytest.mark.parametrize("name", WINDOWS)
def test_max_pool(name: str) -> None:
    shape, kernel, attributes, options = WINDOWS[name]
    function = _torch("max", kernel, options)
    check_node("MaxPool", [spaced(*shape)], {"kernel_shape": kernel, **attributes}, torch=function)


def test_dilated_max_pool() -> None:
    attributes = {"kernel_shape": [2, 3], "dilations": [3, 2], "strides": [1, 2]}
    function = _torch("max", [2, 3], {"dilation": (3, 2), "stride": (1, 2)})
    check_node("MaxPool", [spaced(2, 2, 7, 8)], attributes, torch=function)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("dilation", [1, 2])
def test_windows_that_leave_elements_out_at_both_ends(mode: str, dilation: int) -> None:
    """SAME makes fewer windows than elements: ONNX Runtime lets the first begin at element 1."""
    attributes = {"kernel_shape": [2, 1], "strides": [4, 3], "dilations": [dilation, 1]}
    image = normal(2, 2, 12, 9)
    check_node("AveragePool", [image], {**attributes, "auto_pad": mode})


def test_the_first_of_equal_maxima_gets_the_gradient() -> None:
    rounded = np.round(normal(3, 2, 9, 9))
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    function = _torch("max", [3, 3], {"stride": 2, "padding": 1})
    check_node("MaxPool", [rounded], attributes, torch=function, differences=False)


@pytest.mark.parametrize("order", [0, 1])
def test_max_pool_with_indices(order: int) -> None:
    attributes = {"kernel_shape": [2, 3], "strides": [1, 2], "storage_order": order}
    check_node("MaxPool", [spaced(2, 2, 5, 6)], attributes, outputs=2)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
def test_automatic_padding(op_type: str, mode: str) -> None:
    attributes = {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": mode}
    check_node(op_type, [spaced(1, 2, 5, 6, dtype=np.float32)], attributes)


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("include", [0, 1])
def test_average_pool(name: str, include: int) -> None:
    shape, kernel, attributes, options = WINDOWS[name]
    function = _torch("avg", kernel, {**options, "count_include_pad": bool(include)})
    held = {"kernel_shape": kernel, "count_include_pad": include, **attributes}
    check_node("AveragePool", [normal(*shape, dtype=np.float32)], held, torch=function)


@pytest.mark.parametrize("include", [0, 1])
def test_dilated_average_pool(include: int) -> None:
    attributes = {"kernel_shape": [2, 3], "dilations": [3, 2], "pads": [1, 2, 1, 0]}
    held = {**attributes, "count_include_pad": include}
    check_node("AveragePool", [normal(1, 2, 7, 8, dtype=np.float32)], held)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", ["tiles", "overlap", "line"])
def test_lp_pool(name: str, order: int) -> None:
    shape, kernel, attributes, _ = WINDOWS[name]
    held = {"kernel_shape": kernel, "p": order, **attributes}
    check_node("LpPool", [positive(*shape, dtype=np.float32)], held)
    check_node("LpPool", [spaced(*shape, dtype=np.float32)], held, differences=order > 1)


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [2, 2], "pads": [1] * 4, "ceil_mode": 1},
        {"strides": [1, 2], "dilations": [3, 1], "auto_pad": "SAME_UPPER"},
        {"strides": [4, 3], "dilations": [2, 2], "auto_pad": "SAME_LOWER", "ceil_mode": 1},
    ],
)
def test_a_norm_over_windows_that_inference_counts_otherwise(attributes: dict[str, Any]) -> None:
    """ONNX Runtime would refuse to divide by what it takes to be of another shape."""
    held = {"kernel_shape": [2, 2], "p": 3, **attributes}
    check_node("LpPool", [positive(1, 2, 9, 5, dtype=np.float32)], held)


def test_a_norm_of_zeros_has_no_gradient() -> None:
    vjp = Vjp(node_model("LpPool", [np.zeros((1, 1, 4), np.float32)], {"kernel_shape": [2]}))
    held = np.zeros((1, 1, 4), np.float32)
    run = vjp.run({"x0": held}, {"y0": np.ones((1, 1, 3), np.float32)})
    np.testing.assert_array_equal(run.gradients["x0"], held)


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (1, 2, 3, 2, 4)])
def test_global_pooling(shape: tuple[int, ...]) -> None:
    dims = tuple(range(2, len(shape)))
    check_node("GlobalAveragePool", [normal(*shape)], torch=lambda x: x.mean(dims, True))
    check_node("GlobalMaxPool", [spaced(*shape)], torch=lambda x: x.amax(dims, True))
    for order in (1, 2, 3):
        check_node(
            "GlobalLpPool",
            [positive(*shape)],
            {"p": order},
            torch=lambda x, p=order: x.abs().pow(p).sum(dims, True).pow(1 / p),
        )


def test_max_unpool() -> None:
    import torch

    x = torch.tensor(spaced(2, 3, 4, 6, dtype=np.float32))
    y, at = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    starts = np.arange(6).reshape(2, 3, 1, 1) * 24
    operands = [y.numpy(), at.numpy() + starts]
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    function = torch.nn.functional.max_unpool2d
    check_node("MaxUnpool", operands, attributes, torch=lambda v, _: function(v, at, 2))


def test_max_unpool_into_a_given_shape() -> None:
    y, at = normal(1, 2, 2, 3, dtype=np.float32), np.arange(0, 48, 4).reshape(1, 2, 2, 3)
    shape = np.array([1, 2, 5, 7], np.int64)
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    model = node_model("MaxUnpool", [y, at, shape], attributes, literals={2})
    result = helper.make_tensor_value_info("y0", TensorProto.FLOAT, shape.tolist())
    model.graph.output[0].CopyFrom(result)
    check_model(model, {"x0": y, "x1": at})


@pytest.mark.parametrize("side", ["S(0)", "S(1)"])
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("name", ["tiles", "overlap"])
def test_batch_and_channels_stay_split(op_type: str, name: str, side: str) -> None:
    _, kernel, attributes, _ = WINDOWS[name]
    held = {"kernel_shape": kernel, **attributes}
    vjp = Vjp(node_model(op_type, [normal(2, 4, 8, 8, dtype=np.float32)], held))
    assert side in flow(vjp, {"x0": side, "d_y0": side})["g_x0"]


@pytest.mark.parametrize("side", ["S(0)", "S(1)"])
@pytest.mark.parametrize("op_type", ["GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"])
def test_global_pooling_stays_split(op_type: str, side: str) -> None:
    vjp = Vjp(node_model(op_type, [normal(2, 4, 3, 3, dtype=np.float32)]))
    assert side in flow(vjp, {"x0": side, "d_y0": side})["g_x0"]
