"""Gradients of losses, and the loss of a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from training.harness import check_node, normal, positive
from training.steps import Step, build, model_of, spec_of

from tensoropt.compiler.support.errors import UserError


def classes(*shape: int, below: int, seed: int = 0, ignored: int | None = None) -> Any:
    held = np.random.default_rng([seed, *shape]).integers(0, below, shape)
    if ignored is not None:
        held.reshape(-1)[::3] = ignored
    return held


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("ignored", [None, 2, -100])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
def test_losses(name: str, weighted: bool, ignored: int | None, reduction: str) -> None:
    import torch

    labels = classes(3, 2, below=4, ignored=ignored)
    attributes: dict[str, Any] = {"reduction": reduction}
    options = {"reduction": reduction, "ignore_index": -1}
    if ignored is not None:
        attributes["ignore_index"] = options["ignore_index"] = ignored
    operands = [normal(3, 4, 2), labels, positive(4) if weighted else None]
    apart = {"literals": {2}} if weighted else {}
    function = (
        torch.nn.functional.cross_entropy
        if name.startswith("Softmax")
        else torch.nn.functional.nll_loss
    )
    check_node(
        name, operands, attributes, torch=lambda x, y, w: function(x, y, w, **options), **apart
    )


@pytest.mark.parametrize("cotangents", [None, ["y0"], ["y1"]])
def test_both_results_of_the_cross_entropy(cotangents: list[str] | None) -> None:
    import torch

    def reference(x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(x, y), x.log_softmax(1)

    labels = classes(3, below=4)
    check_node(
        "SoftmaxCrossEntropyLoss", [normal(3, 4), labels], outputs=2, torch=reference,
        cotangents=cotangents,
    )  # fmt: skip


def test_weights_of_classes_are_constants() -> None:
    operands = [normal(3, 4), classes(3, below=4), positive(4)]
    vjp = check_node("SoftmaxCrossEntropyLoss", operands, differences=False)
    assert vjp.gradients["x2"] is None


def test_int32_labels() -> None:
    check_node("SoftmaxCrossEntropyLoss", [normal(3, 4), classes(3, below=4).astype(np.int32)])


def test_the_classes_are_read_twice() -> None:
    vjp = check_node("SoftmaxCrossEntropyLoss", [normal(3, 4), classes(3, below=4)])
    assert vjp.ops.count("LogSoftmax") == vjp.ops.count("Exp") == 1
    assert "Softmax" not in vjp.ops


def linear(*shape: int, dtype: Any = np.float32, weights: int = 5) -> onnx.ModelProto:
    """Return `y = x w` with x of ``shape``."""
    x, w = normal(*shape, dtype=dtype), normal(shape[-1], weights, seed=1, dtype=dtype)
    return model_of([("MatMul", ["x", "w"], "y", {})], {"x": x}, ["y"], {"w": w})


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
def test_softmax_cross_entropy_of_a_step(tmp_path: Path, shape: tuple[int, ...]) -> None:
    import torch

    step = Step(linear(*shape), spec_of("softmax-cross-entropy:y,labels"), tmp_path)
    x, labels = normal(*shape, dtype=np.float32), classes(*shape[:-1], below=5)
    w = torch.tensor(step.state["w"].copy(), requires_grad=True)
    scores = (torch.tensor(x) @ w).reshape(-1, 5)
    loss = torch.nn.functional.cross_entropy(scores, torch.tensor(np.reshape(labels, -1)))
    loss.backward()
    [found] = step.step({"x": x, "labels": np.asarray(labels)}, learning_rate=0.5)
    np.testing.assert_allclose(found, loss.item(), rtol=1e-5)
    expected = (w - 0.5 * w.grad).detach().numpy()
    np.testing.assert_allclose(step.state["w"], expected, rtol=1e-5, atol=1e-6)


def test_mse_of_a_step(tmp_path: Path) -> None:
    import torch

    step = Step(linear(3, 4), spec_of("mse:y,target"), tmp_path)
    x, target = normal(3, 4, dtype=np.float32), normal(3, 5, seed=2, dtype=np.float32)
    w = torch.tensor(step.state["w"].copy(), requires_grad=True)
    loss = torch.nn.functional.mse_loss(torch.tensor(x) @ w, torch.tensor(target))
    loss.backward()
    [found] = step.step({"x": x, "target": target}, learning_rate=0.5)
    np.testing.assert_allclose(found, loss.item(), rtol=1e-5)
    expected = (w - 0.5 * w.grad).detach().numpy()
    np.testing.assert_allclose(step.state["w"], expected, rtol=1e-5, atol=1e-6)


def test_a_narrow_output_is_widened(tmp_path: Path) -> None:
    onnx.save(linear(3, 4, dtype=np.float16), tmp_path / "model.onnx")
    text = str(build(tmp_path / "model.onnx", spec_of("softmax-cross-entropy:y,labels")))
    assert '"onnx.LogSoftmax"' in text
    assert "-> (tensor<f32>" in text


def with_labels(dtype: Any, *shape: int) -> onnx.ModelProto:
    """Return a model that has an input `labels` already, and an output that it is."""
    inputs = {"x": normal(3, 4, dtype=np.float32), "labels": np.zeros(shape, dtype)}
    nodes = [("MatMul", ["x", "w"], "y", {}), ("Identity", ["labels"], "same", {})]
    return model_of(nodes, inputs, ["y", "same"], {"w": normal(4, 5, dtype=np.float32)})


def test_an_input_may_be_the_labels(tmp_path: Path) -> None:
    onnx.save(with_labels(np.int64, 3), tmp_path / "model.onnx")
    module = build(tmp_path / "model.onnx", spec_of("softmax-cross-entropy:y,labels"))
    assert str(module).count('topt.name = "labels"') == 1


@pytest.mark.parametrize(
    ("model", "loss", "text"),
    [
        (linear(3, 4), "mse:yy,t", "no output 'yy', did you mean 'y'?; the model has y"),
        (linear(3, 4), "output:y", "to be one number, got: tensor<3x5xf32>"),
        (linear(3, 4), "mse:y,w", "'w' is a weight of the model, expected another name"),
        (
            with_labels(np.float32, 3),
            "softmax-cross-entropy:y,labels",
            "input 'labels' cannot be the labels: expected tensor<3xi64>, got: tensor<3xf32>",
        ),
        (
            with_labels(np.int64, 3),
            "softmax-cross-entropy:same,t",
            "expected output 'same' to be floating point numbers, got: tensor<3xi64>",
        ),
    ],
)
def test_what_a_loss_refuses(tmp_path: Path, model: onnx.ModelProto, loss: str, text: str) -> None:
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(UserError) as caught:
        build(tmp_path / "model.onnx", spec_of(loss))
    assert str(caught.value).startswith(f"--loss {loss}")
    assert text in str(caught.value)


def test_a_loss_of_the_model_s_own(tmp_path: Path) -> None:
    """Its operator is replaced by others after it was taken for the loss."""
    x, w = normal(3, 4, dtype=np.float32), normal(4, 5, seed=1, dtype=np.float32)
    nodes = [
        ("MatMul", ["x", "w"], "y", {}),
        ("SoftmaxCrossEntropyLoss", ["y", "labels"], "l", {}),
    ]
    labels = classes(3, below=5)
    model = model_of(nodes, {"x": x, "labels": labels}, ["l"], {"w": w})
    own = Step(model, spec_of("output:l"), tmp_path)
    ours = Step(linear(3, 4), spec_of("softmax-cross-entropy:y,labels"), tmp_path)
    feeds = {"x": x, "labels": labels}
    assert own.step(feeds, learning_rate=0.5) == ours.step(feeds, learning_rate=0.5)
    np.testing.assert_allclose(own.state["w"], ours.state["w"], rtol=1e-6)
