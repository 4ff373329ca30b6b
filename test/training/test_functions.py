"""Gradients of functions of one number, of activations and of the Gaussian error linear unit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from training.harness import Array, check_node, normal, positive, spaced

ANYWHERE = {
    "Neg": torch.neg,
    "Abs": torch.abs,
    "Exp": torch.exp,
    "Erf": torch.erf,
    "Sin": torch.sin,
    "Cos": torch.cos,
    "Sinh": torch.sinh,
    "Cosh": torch.cosh,
    "Tanh": torch.tanh,
    "Atan": torch.atan,
    "Asinh": torch.asinh,
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
    "Softplus": F.softplus,
    "Softsign": F.softsign,
    "HardSwish": F.hardswish,
    "Mish": F.mish,
}
WITHIN = {"Tan": torch.tan, "Asin": torch.asin, "Acos": torch.acos, "Atanh": torch.atanh}
POSITIVE = {"Log": torch.log, "Sqrt": torch.sqrt, "Reciprocal": torch.reciprocal}


@pytest.mark.parametrize("name", ANYWHERE)
def test_functions_of_any_number(name: str) -> None:
    x = spaced(4, 10) * (2 if name == "HardSwish" else 1)
    check_node(name, [x], torch=ANYWHERE[name])


@pytest.mark.parametrize("name", WITHIN)
def test_functions_of_small_numbers(name: str) -> None:
    check_node(name, [spaced(4, 5) * 0.45], torch=WITHIN[name])


@pytest.mark.parametrize("name", [*POSITIVE, "Acosh"])
def test_functions_of_positive_numbers(name: str) -> None:
    least = 1.2 if name == "Acosh" else 0.3
    function = {**POSITIVE, "Acosh": torch.acosh}[name]
    check_node(name, [positive(4, 5, least=least)], torch=function)


def test_kinks_at_zero_have_no_slope() -> None:
    for name in ("Abs", "Relu"):
        check_node(name, [np.zeros(2)], torch=ANYWHERE[name], differences=False)


@pytest.mark.parametrize("alpha", [0.0, 0.2, -0.5])
def test_leaky_relu(alpha: float) -> None:
    check_node("LeakyRelu", [spaced(20)], {"alpha": alpha},
               torch=lambda x: torch.where(x > 0, x, np.float32(alpha) * x))  # fmt: skip


@pytest.mark.parametrize("shape", [(3, 1, 1), (1,), (2, 3, 4, 5)])
def test_prelu(shape: tuple[int, ...]) -> None:
    operands = [spaced(2, 3, 4, 5), normal(*shape, seed=1)]
    check_node("PRelu", operands, torch=lambda x, s: torch.where(x > 0, x, s * x))


@pytest.mark.parametrize(
    ("name", "attributes", "function"),
    [
        ("ThresholdedRelu", {"alpha": 0.75}, lambda x: F.threshold(x, 0.75, 0.0)),
        ("Shrink", {"lambd": 0.75, "bias": 0.75}, lambda x: F.softshrink(x, 0.75)),
        ("Shrink", {"lambd": 0.75}, lambda x: F.hardshrink(x, 0.75)),
        ("Elu", {"alpha": 1.5}, lambda x: F.elu(x, 1.5)),
        ("Elu", {"alpha": -1.5}, lambda x: F.elu(x, -1.5)),
        ("Selu", {}, F.selu),
        ("Selu", {"alpha": 0.5, "gamma": -2.0}, lambda x: -2.0 * F.elu(x, 0.5)),
        ("Celu", {"alpha": 1.5}, lambda x: F.celu(x, 1.5)),
        ("HardSigmoid", {"alpha": 0.25, "beta": 0.5}, lambda x: (0.25 * x + 0.5).clamp(0, 1)),
        ("Gelu", {}, F.gelu),
        ("Gelu", {"approximate": "tanh"}, lambda x: F.gelu(x, approximate="tanh")),
    ],
)
def test_activations_with_attributes(name: str, attributes: Any, function: Any) -> None:
    # The runtime's Shrink of float64 computes in float32.
    x = spaced(4, 10, dtype=np.float32 if name == "Shrink" else np.float64) * 1.9
    check_node(name, [x], attributes, torch=function, rtol=2e-6)


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_swish(alpha: float) -> None:
    check_node("Swish", [normal(20)], {"alpha": alpha}, version=24,
               torch=lambda x: x * torch.sigmoid(alpha * x))  # fmt: skip


MICROSOFT = {
    "Gelu": F.gelu,
    "QuickGelu": lambda x: x * torch.sigmoid(1.702 * x),
    "FastGelu": lambda x, *b: F.gelu(x + sum(b), approximate="tanh"),
    "BiasGelu": lambda x, *b: F.gelu(x + sum(b)),
}


@pytest.mark.parametrize("name", MICROSOFT)
def test_gelu_of_onnx_runtime(name: str) -> None:
    x, bias = normal(3, 8), normal(8, seed=1)
    operands: list[Array | None] = [x, bias] if name == "BiasGelu" else [x]
    check_node(name, operands, domain="com.microsoft", torch=MICROSOFT[name], rtol=3e-6)
    if name == "FastGelu":
        check_node(name, [x, bias], domain="com.microsoft", torch=MICROSOFT[name], rtol=3e-6)


@pytest.mark.parametrize("name", ["Relu", "Sigmoid", "Tanh", "Exp"])
def test_half_precision(name: str) -> None:
    check_node(name, [normal(30, dtype=np.float16)], torch=ANYWHERE[name])
