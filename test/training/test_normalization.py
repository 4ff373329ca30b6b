"""Gradients of normalisations against PyTorch and finite differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from training.flow import flow
from training.harness import Vjp, check_model, check_node, node_model, normal, positive
from training.steps import Node, Step, model_of, spec_of

TOTAL: Node = ("ReduceSum", ["z"], "loss", {"keepdims": 0})


def narrow(*shape: int, seed: int = 0) -> Any:
    """Return float32 values: some operators compute in nothing wider."""
    return normal(*shape, seed=seed, dtype=np.float32)


def _batch(*shape: int, dtype: Any = np.float64) -> list[Any]:
    parameters = [normal(shape[1], seed=seed, dtype=dtype) for seed in (1, 2, 3)]
    return [normal(*shape, dtype=dtype) + 2, *parameters, positive(shape[1], dtype=dtype)]


def _torch_batch(x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    from torch.nn import functional

    return functional.batch_norm(x, None, None, scale, bias, training=True, eps=1e-3)


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 2)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_batch_normalization(shape: tuple[int, ...], dtype: Any) -> None:
    check_node(
        "BatchNormalization",
        _batch(*shape, dtype=dtype),
        {"epsilon": 1e-3},
        torch=_torch_batch,
        same_forward=False,
    )


def test_batch_normalization_of_narrow_floats() -> None:
    check_node(
        "BatchNormalization",
        _batch(4, 3, 5, 5, dtype=np.float16),
        {"epsilon": 1e-3},
        torch=lambda *operands: _torch_batch(*(x.float() for x in operands)).half(),
        same_forward=False,
        rtol=2e-2,
    )


def test_running_statistics_move_towards_those_of_the_batch() -> None:
    operands = _batch(4, 3, 5)
    vjp = Vjp(node_model("BatchNormalization", operands, {"momentum": 0.8}), wanted=["x0"])
    feeds = _feeds(operands)
    run = vjp.run(feeds, {"y0": normal(4, 3, 5)})
    x = operands[0]
    expected = {"x3": x.mean((0, 2)), "x4": x.var((0, 2))}  # of the population
    for name, batch in expected.items():
        np.testing.assert_allclose(run.buffers[name], 0.8 * feeds[name] + 0.2 * batch, rtol=1e-6)


def test_results_of_training_mode_are_the_running_statistics() -> None:
    operands = _batch(4, 3, 5, dtype=np.float32)
    held = {"training_mode": 1}
    check_node("BatchNormalization", operands, held, outputs=3, cotangents=["y0"])


def test_running_statistics_that_the_loss_reads_stay_buffers(tmp_path: Path) -> None:
    x, scale, bias, mean, variance = _batch(4, 3, 5, dtype=np.float32)
    held = {"scale": scale, "bias": bias, "mean": mean, "variance": variance}
    model = model_of([("Add", ["y", "v"], "z", {}), TOTAL], {"x": x}, ["loss"], held)
    node = ("BatchNormalization", ["x", *held], ["y", "", "moved"])
    model.graph.node.insert(0, helper.make_node(*node, training_mode=1, momentum=0.8))
    model.graph.node.insert(1, helper.make_node("Unsqueeze", ["moved", "dims"], ["v"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array([0, 2]), "dims"))
    step = Step(model, spec_of("output:loss"), tmp_path)
    assert set(step.updates) == set(held)
    step.step({"x": x}, learning_rate=0.1)
    np.testing.assert_allclose(step.state["mean"], 0.8 * mean + 0.2 * x.mean((0, 2)), rtol=1e-5)


def _layer(rank: int, **options: Any) -> Any:
    from torch.nn import functional

    return lambda x, *parameters: functional.layer_norm(
        x, x.shape[x.ndim - rank :], *parameters, **options
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_normalization(bias: bool, dtype: Any) -> None:
    operands = [normal(2, 3, 8, dtype=dtype), normal(8, dtype=dtype)]
    operands += [normal(8, seed=1, dtype=dtype)] if bias else []
    check_node("LayerNormalization", operands, {"epsilon": 1e-3}, torch=_layer(1, eps=1e-3))


def test_layer_normalization_over_two_dimensions() -> None:
    operands = [normal(3, 4, 5, dtype=np.float32), normal(4, 5, dtype=np.float32)]
    check_node("LayerNormalization", operands, {"axis": 1}, torch=_layer(2))


def test_layer_normalization_of_narrow_floats() -> None:
    operands = [normal(4, 16, dtype=np.float16), normal(16, dtype=np.float16)]
    check_node("LayerNormalization", operands, torch=_layer(1))


def test_statistics_are_kept() -> None:
    operands = [normal(4, 8, dtype=np.float32), normal(8, dtype=np.float32)]
    vjp = check_node("LayerNormalization", operands, outputs=3, cotangents=["y0"])
    assert "Sqrt" not in vjp.ops


def _rms(x: Any, scale: Any, epsilon: float = 1e-5) -> Any:
    return x * (x.square().mean(-1, True) + epsilon).rsqrt() * scale


def test_root_mean_square() -> None:
    operands = [normal(2, 3, 8), normal(8)]
    check_node("RMSNormalization", operands, version=23, torch=_rms)


def test_simplified_layer_normalization() -> None:
    operands = [normal(3, 8, dtype=np.float32), normal(8, dtype=np.float32)]
    held = {"epsilon": 1e-2, "axis": -1}
    check_node("SimplifiedLayerNormalization", operands, held, torch=lambda x, s: _rms(x, s, 1e-2))


SKIP = {
    "SkipLayerNormalization": [(2, 3, 8), (2, 3, 8), (8,), (8,), (8,)],
    "SkipSimplifiedLayerNormalization": [(2, 3, 8), (2, 3, 8), (8,), (8,)],
}


@pytest.mark.parametrize("op_type", SKIP)
@pytest.mark.parametrize("epsilon", [None, 1e-2])
@pytest.mark.parametrize("outputs", [(True,), (True, False, False, True)])
def test_normalised_sums(op_type: str, epsilon: float | None, outputs: tuple[bool, ...]) -> None:
    operands = [normal(*s, seed=i, dtype=np.float32) for i, s in enumerate(SKIP[op_type])]
    operands = [0.01 * held for held in operands] if epsilon is None else operands
    check_node(
        op_type,
        operands,
        {} if epsilon is None else {"epsilon": epsilon},
        domain="com.microsoft",
        outputs=outputs,
        differences=epsilon is not None,
    )


@pytest.mark.parametrize("shape", [(2, 3, 6), (2, 3, 4, 5), (2, 3, 2, 3, 2)])
def test_instance_normalization(shape: tuple[int, ...]) -> None:
    from torch.nn import functional

    check_node(
        "InstanceNormalization",
        [normal(*shape), normal(3), normal(3, seed=1)],
        {"epsilon": 1e-3},
        torch=lambda x, s, b: functional.instance_norm(x, weight=s, bias=b, eps=1e-3),
    )


def _declared(op_type: str, operands: list[Any], held: dict[str, Any], version: int = 20) -> Any:
    """Return a model whose result has the type of its first operand: ONNX infers none."""
    model = node_model(op_type, operands, held, version=version)
    model.graph.output[0].type.CopyFrom(model.graph.input[0].type)
    return model


def _feeds(operands: list[Any]) -> dict[str, Any]:
    return {f"x{i}": held for i, held in enumerate(operands)}


def test_group_normalization() -> None:
    from torch.nn import functional

    operands = [narrow(2, 6, 4, 3), narrow(6), narrow(6, seed=1)]
    check_model(
        _declared("GroupNormalization", operands, {"num_groups": 3}, 21),
        _feeds(operands),
        torch=lambda held: functional.group_norm(held["x0"], 3, held["x1"], held["x2"]),
    )


def test_group_normalization_with_a_scale_per_group() -> None:
    operands = [narrow(2, 6, 4), narrow(3), narrow(3, seed=1)]
    check_model(_declared("GroupNormalization", operands, {"num_groups": 3}), _feeds(operands))


@pytest.mark.parametrize("axes", [None, [1, -1]])
def test_mean_variance_normalization(axes: list[int] | None) -> None:
    held = {} if axes is None else {"axes": axes}
    operands = [narrow(2, 3, 4, 5)]
    check_model(_declared("MeanVarianceNormalization", operands, held), _feeds(operands))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("axis", [-1, 1])
def test_lp_normalization(order: int, axis: int) -> None:
    from torch.nn import functional

    check_node(
        "LpNormalization",
        [positive(2, 3, 4)],
        {"p": order, "axis": axis},
        torch=lambda x: functional.normalize(x, order, axis),
    )
    check_node("LpNormalization", [normal(2, 3, 4)], {"p": order, "axis": axis}, differences=False)


def test_a_vector_of_zeros_has_no_gradient() -> None:
    vjp = Vjp(node_model("LpNormalization", [np.zeros((1, 4))]))
    run = vjp.run({"x0": np.zeros((1, 4))}, {"y0": np.ones((1, 4))})
    np.testing.assert_array_equal(run.gradients["x0"], np.zeros((1, 4)))


@pytest.mark.parametrize("size", [1, 3, 5])
def test_local_response_normalization(size: int) -> None:
    from torch.nn import functional

    held = {"size": size, "alpha": 0.3, "beta": 0.6, "bias": 1.5}
    x = normal(2, 6, 3, 4, dtype=np.float32)
    function = functional.local_response_norm
    check_node("LRN", [x], held, torch=lambda x: function(x, size, 0.3, 0.6, 1.5))


def test_split_batches_leave_partial_sums() -> None:
    operands = [normal(2, 4, 6, dtype=np.float32), normal(6, dtype=np.float32)]
    vjp = Vjp(node_model("LayerNormalization", [*operands, operands[1]]))
    found = flow(vjp, {"x0": "S(0)", "d_y0": "S(0)"})
    assert "S(0)" in found["g_x0"]
    assert "P(sum)" in found["g_x1"]
    assert "P(sum)" in found["g_x2"]


def test_split_channels_need_nothing_of_each_other() -> None:
    vjp = Vjp(node_model("BatchNormalization", _batch(2, 4, 3, 3, dtype=np.float32)))
    names = {f"x{i}": "S(0)" for i in range(1, 5)}
    found = flow(vjp, {"x0": "S(1)", "d_y0": "S(1)", **names})
    assert "S(1)" in found["g_x0"]
    assert all("S(0)" in found[name] for name in ("g_x1", "g_x2", "b_x3", "b_x4"))


@pytest.mark.parametrize("op_type", ["InstanceNormalization", "GroupNormalization"])
@pytest.mark.parametrize(("side", "own"), [("S(0)", "R"), ("S(1)", "S(0)")])
def test_groups_stay_split(op_type: str, side: str, own: str) -> None:
    held = {"num_groups": 2} if op_type == "GroupNormalization" else {}
    operands = [normal(2, 4, 3, 3, dtype=np.float32), *[normal(4, dtype=np.float32)] * 2]
    vjp = Vjp(_declared(op_type, operands, held, 21 if held else 20))
    found = flow(vjp, {"x0": side, "d_y0": side, "x1": own, "x2": own})
    assert side in found["g_x0"]
    assert ("P(sum)" if own == "R" else own) in found["g_x1"]
