"""Whole steps, one ONNX model each, against torch.optim."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from steps import Array, Step, model_of, spec_of

from tensoropt.compiler.training.spec import parse_groups

STEPS, RATE, RTOL = 10, 0.01, 1e-5
RNG = np.random.default_rng(0)
W = RNG.standard_normal((6, 5)).astype(np.float32)
B = RNG.standard_normal(5).astype(np.float32)
S = RNG.random(5).astype(np.float32)
BATCHES = RNG.standard_normal((2 * STEPS, 4, 6)).astype(np.float32)

MODEL = model_of(
    [
        ("MatMul", ["x", "w"], "product", {}),
        ("Add", ["product", "b"], "sum", {}),
        ("Relu", ["sum"], "relu", {}),
        ("Mul", ["relu", "s"], "scaled", {}),
        ("Mul", ["scaled", "scaled"], "square", {}),
        ("ReduceSum", ["square"], "l", {"keepdims": 0}),
    ],
    {"x": BATCHES[0]},
    ["l"],
    {"w": W, "b": B, "s": S},
)

TORCH: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p, **held: torch.optim.SGD(p, lr=RATE, **held),
    "momentum": lambda p, **held: torch.optim.SGD(p, lr=RATE, momentum=0.9, **held),
    "adam": lambda p, **held: torch.optim.Adam(p, lr=RATE, **held),
    "adamw": lambda p, **held: torch.optim.AdamW(p, lr=RATE, **{"weight_decay": 0.0, **held}),
}


def in_torch(
    optimizer: str, micro_batches: int = 1, clip: float | None = None, **held: float
) -> tuple[list[float], dict[str, Array]]:
    """Return the losses of the micro-batches and the parameters after all steps."""
    w, b, s = (torch.tensor(x, requires_grad=True) for x in (W, B, S))
    made, losses = TORCH[optimizer]([w, b, s], **held), []
    for batches in np.split(BATCHES[: STEPS * micro_batches], STEPS):
        made.zero_grad()
        for x in torch.tensor(batches):
            loss = (torch.relu(x @ w + b) * s).square().sum()
            (loss / micro_batches).backward()
            losses.append(float(loss.detach()))
        if clip is not None:
            torch.nn.utils.clip_grad_norm_([w, b, s], clip)
        made.step()
    return losses, {n: p.detach().numpy() for n, p in {"w": w, "b": b, "s": s}.items()}


def in_onnx(
    folder: Path, optimizer: str, micro_batches: int = 1, **held: Any
) -> tuple[list[float], Step]:
    spec = spec_of("output:l", optimizer, micro_batches=micro_batches, **held)
    step, losses = Step(MODEL, spec, folder), []
    for number, batches in enumerate(np.split(BATCHES[: STEPS * micro_batches], STEPS), 1):
        feeds = [{"x": x} for x in batches]
        losses += step.step(*feeds, learning_rate=RATE, step=number)
    return losses, step


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("optimizer", TORCH)
def test_optimizers(optimizer: str, decay: float, tmp_path: Path) -> None:
    losses, expected = in_torch(optimizer, weight_decay=decay)
    got, step = in_onnx(tmp_path, optimizer, weight_decay=decay)
    np.testing.assert_allclose(got, losses, RTOL)
    for name, parameter in expected.items():
        np.testing.assert_allclose(step.state[name], parameter, RTOL, 1e-6)


@pytest.mark.parametrize("optimizer", TORCH)
@pytest.mark.parametrize("clip", [0.5, 1e6])
def test_clipping(optimizer: str, clip: float, tmp_path: Path) -> None:
    losses, expected = in_torch(optimizer, clip=clip, weight_decay=0.1)
    got, step = in_onnx(tmp_path, optimizer, clip_norm=clip, weight_decay=0.1)
    np.testing.assert_allclose(got, losses, RTOL)
    for name, parameter in expected.items():
        np.testing.assert_allclose(step.state[name], parameter, RTOL, 1e-6)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_micro_batches(clip: float | None, tmp_path: Path) -> None:
    losses, expected = in_torch("adam", 2, clip)
    got, step = in_onnx(tmp_path, "adam", 2, clip_norm=clip)
    np.testing.assert_allclose(got, losses, RTOL)
    for name, parameter in expected.items():
        np.testing.assert_allclose(step.state[name], parameter, RTOL, 1e-6)


@pytest.mark.parametrize("optimizer", TORCH)
def test_groups_are_those_of_torch(optimizer: str, tmp_path: Path) -> None:
    """The first group that has a parameter applies, and the others have the optimizer's options."""
    groups = parse_groups("b:weight-decay=0;[bs]:rate-factor=0.1")
    spec = spec_of("output:l", optimizer, weight_decay=0.1, groups=groups)
    step = Step(MODEL, spec, tmp_path)
    w, b, s = (torch.tensor(x, requires_grad=True) for x in (W, B, S))
    own = [{"params": [w]}, {"params": [b], "weight_decay": 0.0}, {"params": [s], "lr": RATE / 10}]
    made = TORCH[optimizer](own, weight_decay=0.1)
    for number, x in enumerate(BATCHES[:STEPS], 1):
        step.step({"x": x}, learning_rate=RATE, step=number)
        made.zero_grad()
        (torch.relu(torch.tensor(x) @ w + b) * s).square().sum().backward()
        made.step()
    for name, parameter in {"w": w, "b": b, "s": s}.items():
        np.testing.assert_allclose(step.state[name], parameter.detach().numpy(), RTOL, 1e-6)


def test_a_parameter_is_gone_over_few_times(tmp_path: Path) -> None:
    """Per optimizer: how many ops of the update phase are as large as the parameter."""
    passes = {"sgd": 2, "momentum": 5, "adam": 12, "adamw": 12}
    for optimizer, expected in passes.items():
        folder = tmp_path / optimizer
        folder.mkdir()
        spec = spec_of("output:l", optimizer, clip_norm=1.0)
        text = str(Step(MODEL, spec, folder).module)
        lines = [x for x in text.splitlines() if 'topt.phase = "update"' in x]
        assert sum(x.endswith("-> tensor<6x5xf32>") for x in lines) == expected


STEEP = model_of(
    [
        ("MatMul", ["x", "w"], "product", {}),
        ("Mul", ["product", "steep"], "scaled", {}),
        ("ReduceSum", ["scaled"], "l", {"keepdims": 0}),
    ],
    {"x": BATCHES[0]},
    ["l"],
    {"w": W, "steep": np.array(1e20, np.float32)},
)


@pytest.mark.parametrize("optimizer", TORCH)
def test_gradients_with_squares_above_float32_are_clipped(optimizer: str, tmp_path: Path) -> None:
    """The truth is PyTorch in float64."""
    step = Step(STEEP, spec_of("output:l", optimizer, clip_norm=0.5, weight_decay=0.1), tmp_path)
    w = torch.tensor(W, dtype=torch.float64, requires_grad=True)
    made = TORCH[optimizer]([w], weight_decay=0.1)
    for number, x in enumerate(BATCHES[:STEPS], 1):
        step.step({"x": x}, learning_rate=RATE, step=number)
        made.zero_grad()
        ((torch.tensor(x, dtype=torch.float64) @ w).sum() * 1e20).backward()
        torch.nn.utils.clip_grad_norm_([w], 0.5)
        made.step()
        np.testing.assert_allclose(step.state["w"], w.detach().numpy(), RTOL, 1e-6)
