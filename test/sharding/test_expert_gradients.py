"""Gradients of mixtures of experts: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, local_functions, normal
from sharding.mixtures import LOADS, mixture, mixtures, routed

from tensoropt.compiler.cost.compute import op_time_s
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.cost.experts import separate_products
from tensoropt.compiler.sharding.proof.onnx_node import Array
from tensoropt.runtime.layout.mesh import Mesh

MESHES = [(2,), (4,), (2, 2)]


def gradient(forward: Case, layers: Sequence[int] | None = None) -> Case:
    """Return the gradient of a mixture, of all ``layers``, with the gradients of PyTorch."""
    given = normal(*np.shape(forward.operands[0]), seed=9)
    found = torch_gradients(forward, given)
    own = [i for i in range(2, 6) if found[i] is not None] if layers is None else layers
    expected = [np.asarray(found[i], np.float32) for i in (0, 1, *own)]
    return Case(
        "MoEGradient", [*forward.operands, given], {**forward.attributes, "layers": own}, 1,
        "tensoropt", results=(True,) * len(expected), expected=expected,
    )  # fmt: skip


def torch_gradients(case: Case, dy: Array) -> list[Array | None]:
    """Return the gradient of each operand by PyTorch, in float64."""
    import torch

    held = [None if x is None else torch.tensor(x, dtype=torch.float64, requires_grad=True)
            for x in case.operands]  # fmt: skip
    y = torch_mixture(*held, **case.attributes)
    y.backward(torch.tensor(dy, dtype=torch.float64))
    return [None if x is None else np.asarray(x.grad) for x in held]


def torch_mixture(
    x: Any, scores: Any, up: Any, up_bias: Any, down: Any, down_bias: Any, *, k: int = 1,
    normalize_routing_weights: int = 0, activation_type: str = "relu", swiglu_fusion: int = 0,
    **attributes: float,
) -> Any:  # fmt: skip
    """Return a mixture of all experts, those that a token does not select with the weight 0."""
    import torch

    rows, odds = x.reshape(-1, x.shape[-1]), scores.softmax(-1)
    best, which = odds.topk(k, -1)
    best = best / best.sum(-1, keepdim=True) if normalize_routing_weights else best
    weights = torch.zeros_like(odds).scatter(1, which, best)
    wide = torch.einsum("td,efd->tef", rows, up)
    wide = wide if up_bias is None else wide + up_bias
    inner = _activated(wide, activation_type, **attributes)
    results = torch.einsum("tef,edf->ted", inner, down)
    results = results if down_bias is None else results + down_bias
    return (weights[:, :, None] * results).sum(1).reshape(x.shape)


def _activated(
    x: Any, kind: str, *, activation_alpha: float = 1.0, activation_beta: float = 0.0,
    swiglu_limit: float = np.inf,
) -> Any:  # fmt: skip
    import torch

    if kind == "swiglu":
        gates = x[..., ::2].clamp(max=swiglu_limit)
        values = x[..., 1::2].clamp(-swiglu_limit, swiglu_limit)
        return gates * (activation_alpha * gates).sigmoid() * (values + activation_beta)
    how = {"gelu": {"approximate": "tanh"}}.get(kind, {})
    return x if kind == "identity" else getattr(torch.nn.functional, kind)(x, **how)


def same(case: Case, mesh: tuple[int, ...]) -> set[str]:
    return check(case, mesh, rtol=1e-3, atol=1e-4, opens=False).offered


def test_tokens_experts_and_features_split() -> None:
    assert same(gradient(mixture(k=2)), (2,)) == {
        "R R R R R R R -> R R R R R R",
        "S(0) S(0) R R R R S(0) -> S(0) S(0) P(sum) P(sum) P(sum) P(sum)",
        "R R S(0) S(0) S(0) S(0) R -> P(sum) P(sum) S(0) S(0) S(0) S(0)",
        "R R S(1) S(1) S(2) R R -> P(sum) P(sum) S(1) S(1) S(2) P(sum)",
        "S(0) S(0) S(0) S(0) S(0) S(0) S(0) -> S(0) S(0) S(0) S(0) S(0) S(0)",
    }


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("load", LOADS)
def test_loads_may_be_uneven(load: str, ranks: int) -> None:
    forward = routed(mixture(4, k=2, tokens=(8,)), *LOADS[load])
    same(gradient(replace(forward, attributes={"k": 2, "normalize_routing_weights": 1})), (ranks,))


def test_uneven_experts() -> None:
    found = same(gradient(mixture(7, k=2, tokens=(8,))), (4,))
    assert any(text.startswith("S(0) S(0) S(0) S(0) S(0) S(0)") for text in found)


def test_gates_are_clamped_as_in_the_runtime() -> None:
    own = {"activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_limit": 0.7}
    same(gradient(mixture(k=2, fused=1, **own)), (2,))


@examples(30)
@given(mesh=st.sampled_from(MESHES), forward=mixtures())
def test_any_mixture(mesh: tuple[int, ...], forward: Case) -> None:
    same(gradient(forward), mesh)


def test_tokens_travel_with_their_gradients() -> None:
    """One exchange there, of both, and one back, of the gradients of tokens and choices."""
    case = gradient(mixture(k=2))
    [sent] = [text for text in local_functions(case, (2,)) if "topt.all_to_all_rows" in text]
    there, back = [line for line in sent.splitlines() if "topt.all_to_all_rows" in line]
    assert "tensor<?x32xf32>" in there and "tensor<?x18xf32>" in back


@pytest.mark.parametrize("layers", [[], [2, 3], [5]])
def test_frozen_weights_have_no_gradient(layers: list[int]) -> None:
    same(gradient(mixture(k=2), layers), (2,))
    products = {0: 3, 2: 4}[min(len(layers), 2) if 2 in layers else 0]
    report = check(gradient(mixture(k=2), layers), (2,), rtol=1e-3, atol=1e-4, opens=False)
    assert report.flops == 2 * 6 * 2 * products * 16 * 32


def test_messages_are_priced() -> None:
    report = check(gradient(mixture(k=2)), (2,), rtol=1e-3, atol=1e-4, opens=False)
    [sent] = [strategy for strategy in report.tried if strategy.joint_axes]
    steps = Counter((kind, size) for kind, axes, size in report.rule.inner_steps(sent, Mesh((2,)))
                    if axes and kind != "copy")  # fmt: skip
    row = 16 * 4
    assert steps == {
        ("all_gather", 3 * 2 * 8): 1,
        ("all_to_all_rows", round(4.5 * 2 * row)): 1,
        ("all_to_all_rows", round(4.5 * (row + 2 * 4))): 1,
    }


def test_each_expert_launches_its_products() -> None:
    report = check(gradient(mixture(k=2)), (2,), rtol=1e-3, atol=1e-4, opens=False)
    device, mesh = load_device("cpu"), Mesh((2,))
    launches = {
        tuple(strategy.operands[2].texts): separate_products(report.info, strategy, mesh)
        for strategy in report.tried
    }
    assert launches == {("R",): 20, ("S(0)",): 10, ("S(1)",): 20}
    longer = replace(device, launch_overhead_s=device.launch_overhead_s + 1.0)
    [whole, *_] = report.tried
    times = [op_time_s(report.info, report.rule, whole, mesh, own) for own in (device, longer)]
    assert times[1] - times[0] == pytest.approx(21.0)


def test_work() -> None:
    """Of two layers, the first is computed again, and both have two gradients."""
    report = check(gradient(mixture(k=2, biases=False)), (2,), rtol=1e-3, atol=1e-4, opens=False)
    assert report.flops == 2 * 6 * 2 * 5 * 16 * 32
