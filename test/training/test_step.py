"""Which parameters a step trains, where they are used, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from steps import Array, Node, Step, build, held_by, model_of, spec_of

from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.spec import Loss, Optimizer, TrainingSpec, parse_loss

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 6)).astype(np.float32)
W = RNG.standard_normal((6, 6)).astype(np.float32)
V = RNG.standard_normal((6, 6)).astype(np.float32)
RATE = 0.01
SUM: Node = ("ReduceSum", ["q"], "l", {"keepdims": 0})


def trained(folder: Path, nodes: list[Node], weights: dict[str, Array], **held: Any) -> Step:
    """Return one step of SGD, done."""
    model = model_of(nodes, {"x": X}, ["l"], weights)
    step = Step(model, spec_of("output:l", "sgd", **held), folder)
    step.step({"x": X}, learning_rate=RATE)
    return step


def gradient(step: Step, name: str, before: Array) -> Array:
    return (before - step.state[name]) / RATE


def test_a_tied_parameter_has_one_gradient(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("MatMul", ["x", "w"], "a", {}),
        ("Relu", ["a"], "r", {}),
        ("Gemm", ["r", "w"], "b", {"transB": 1}),
        ("Mul", ["b", "w_row"], "c", {}),
        ("Add", ["c", "x"], "d", {}),
        ("Mul", ["d", "d"], "q", {}),
        SUM,
    ]
    step = trained(tmp_path, nodes, {"w": W, "w_row": V[0]})
    w = torch.tensor(W, requires_grad=True)
    x = torch.tensor(X)
    ((torch.relu(x @ w) @ w.T * torch.tensor(V[0]) + x) ** 2).sum().backward()
    assert w.grad is not None
    np.testing.assert_allclose(gradient(step, "w", W), w.grad.numpy(), 1e-3, 1e-2)
    assert sorted(step.state) == ["w", "w_row"]


def test_a_parameter_that_is_used_in_many_places(tmp_path: Path) -> None:
    nodes: list[Node] = [("MatMul", ["x", "w"], "h0", {})]
    for i in range(4):
        nodes += [
            ("Relu", [f"h{i}"], f"r{i}", {}),
            ("MatMul", [f"r{i}", "w"], f"m{i}", {}),
            ("Add", [f"m{i}", f"h{i}"], f"h{i + 1}", {}),
        ]
    step = trained(tmp_path, [*nodes, ("Mul", ["h4", "h4"], "q", {}), SUM], {"w": W / 4})
    w = torch.tensor(W / 4, requires_grad=True)
    h = torch.tensor(X) @ w
    for _ in range(4):
        h = torch.relu(h) @ w + h
    (h**2).sum().backward()
    assert w.grad is not None
    np.testing.assert_allclose(gradient(step, "w", W / 4), w.grad.numpy(), 1e-3, 1e-2)


def test_parameters_that_reach_the_loss_by_integers_alone_stay(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("ArgMax", ["v"], "best", {"axis": 1, "keepdims": 0}),
        ("Cast", ["best"], "place", {"to": 1}),
        ("MatMul", ["x", "w"], "a", {}),
        ("Mul", ["a", "place"], "q", {}),
        SUM,
    ]
    step = trained(tmp_path, nodes, {"w": W, "v": V})
    arguments = {own["name"]: own for own in held_by(step.module, "arg_attrs")}
    assert "param" in arguments["v"]
    assert arguments["w"]["state"] == "parameter"
    assert list(step.state) == ["w"]


def test_frozen_parameters_stay(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("MatMul", ["x", "layer.w"], "a", {}),
        ("MatMul", ["a", "head.w"], "q", {}),
        SUM,
    ]
    step = trained(tmp_path, nodes, {"layer.w": W, "head.w": V}, freeze=("layer.*",))
    assert list(step.state) == ["head.w"]
    np.testing.assert_allclose(gradient(step, "head.w", V), (X @ W).T @ np.ones_like(X), 1e-3, 1e-2)
    # Nothing of the way to the frozen parameter is computed.
    assert "a.grad." not in step.module.operation.get_asm(enable_debug_info=True)


def test_the_loss_may_be_called_loss(tmp_path: Path) -> None:
    nodes: list[Node] = [("MatMul", ["x", "w"], "q", {}), (*SUM[:2], "loss", SUM[3])]
    model = model_of(nodes, {"x": X}, ["loss"], {"w": W})
    step = Step(model, spec_of("output:loss"), tmp_path)
    assert held_by(step.module, "res_attrs")[0]["name"] == "loss"
    np.testing.assert_allclose(step.step({"x": X}, learning_rate=0.0), (X @ W).sum(), 1e-4)


def _refused(folder: Path, model: onnx.ModelProto, message: str, **held: Any) -> None:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UserError, match=message):
        build(path, spec_of("output:l", **held))


def test_a_branch_that_reads_a_trained_value(tmp_path: Path) -> None:
    def branch(name: str) -> onnx.GraphProto:
        out = [onnx.ValueInfoProto(name=name)]
        return helper.make_graph([helper.make_node("Relu", ["a"], [name])], name, [], out)

    branches = {"then_branch": branch("t"), "else_branch": branch("e")}
    nodes: list[Node] = [
        ("MatMul", ["x", "w"], "a", {}),
        ("If", ["c"], "q", branches),
        SUM,
    ]
    model = model_of(nodes, {"x": X, "c": np.array(True)}, ["l"], {"w": W})
    _refused(tmp_path, model, r"node 'q' \(If\) is between a parameter and the loss")


def test_a_sequence_between_a_parameter_and_the_loss(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("MatMul", ["x", "w"], "a", {}),
        ("SequenceConstruct", ["a", "x"], "s", {}),
        ("SequenceAt", ["s", "i"], "q", {}),
        SUM,
    ]
    model = model_of(nodes, {"x": X, "i": np.array(0)}, ["l"], {"w": W})
    _refused(tmp_path, model, r"training needs static shapes|\(SequenceAt\) is between")


def test_what_is_refused(tmp_path: Path) -> None:
    nodes: list[Node] = [("MatMul", ["x", "w"], "q", {}), SUM]
    model = model_of(nodes, {"x": X}, ["l"], {"w": W})
    _refused(tmp_path, model, "the loss depends on no parameter", freeze=("*",))
    dim = model.graph.input[0].type.tensor_type.shape.dim[0]
    dim.dim_param = "batch"
    _refused(tmp_path, model, "static shapes, expected --dim batch=SIZE")
    dim.dim_value = 4
    model.graph.output.add(name="q")
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UserError, match=r"output:q: expected .* one number, got"):
        build(path, spec_of("output:q"))
    with pytest.raises(UserError, match="no output 'ql', did you mean 'q'"):
        build(path, spec_of("output:ql"))


def test_the_text_of_a_loss() -> None:
    assert parse_loss("output:a:0") == Loss("output", "a:0")
    assert parse_loss("mse:y,t") == Loss("mse", "y", "t")
    for text in ("output:loss", "softmax-cross-entropy:logits,labels"):
        assert str(parse_loss(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown kind '', valid choices are output, softmax-cross-entropy, mse"),
        ("msse:a,b", "did you mean 'mse'"),
        ("output:", "expected output:NAME, got: 'output:'"),
        ("mse:y", "expected mse:OUTPUT,LABELS, got: 'mse:y'"),
        ("mse:y,", "expected mse:OUTPUT,LABELS, got: 'mse:y,'"),
        ("mse:,y", "expected mse:OUTPUT,LABELS, got: 'mse:,y'"),
    ],
)
def test_a_loss_that_is_none(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_loss(text)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"micro_batches": 0}, "micro batches: expected 1 or more, got: 0"),
        ({"clip_norm": 0.0}, "clip norm: expected above 0, got: 0.0"),
        ({"clip_norm": float("nan")}, "clip norm: expected above 0, got: nan"),
        ({"precision": "fp16"}, "precision: unknown type 'fp16', valid choices are float32"),
        ({"recompute": "block"}, "recompute: unknown policy 'block', .* did you mean 'blocks'"),
    ],
)
def test_a_spec_that_is_none(held: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TrainingSpec(Loss("output", "l"), **held)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"name": "adm"}, "unknown name 'adm', .* did you mean 'adam'"),
        ({"name": "adam", "beta1": 1.0}, "beta1: expected at least 0 and below 1, got: 1.0"),
        ({"name": "adam", "epsilon": 0.0}, "epsilon: expected above 0 and below 1, got: 0.0"),
        ({"name": "sgd", "weight_decay": -1.0}, "weight decay: expected 0 or more, got: -1.0"),
    ],
)
def test_an_optimizer_that_is_none(held: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Optimizer(**held)


def test_scalars_are_constants_and_biases_of_one_number_are_trained(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("MatMul", ["x", "w"], "a", {}),
        ("Add", ["a", "b"], "c", {}),
        ("Mul", ["c", "s"], "q", {}),
        SUM,
    ]
    weights = {"w": W[:, :1], "b": W[0, :1], "s": np.float32(2)}
    model = model_of(nodes, {"x": X}, ["l"], weights)
    assert sorted(Step(model, spec_of("output:l"), tmp_path).state) == ["b", "w"]


def test_a_step_in_front_of_the_loss(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("MatMul", ["x", "w"], "a", {}),
        ("Floor", ["a"], "f", {}),
        ("Mul", ["a", "f"], "q", {}),
        SUM,
    ]
    step = Step(model_of(nodes, {"x": X}, ["l"], {"w": W}), spec_of("output:l"), tmp_path)
    step.step({"x": X}, learning_rate=1.0)
    gradient = X.reshape(-1, X.shape[-1]).T @ np.floor(X @ W).reshape(-1, W.shape[-1])
    np.testing.assert_allclose(step.state["w"], W - gradient, rtol=1e-4, atol=1e-4)


def test_a_product_whose_gradient_is_a_late_part(tmp_path: Path) -> None:
    """Which ONNX Runtime cannot load where the product is added by Sum."""
    weights = {"v": X[:1, :2], "u": RNG.standard_normal((2, 1)).astype(np.float32)}
    nodes: list[Node] = [
        ("MatMul", ["v", "u"], "a", {}),
        ("Concat", ["v", "v", "v", "a"], "c", {"axis": 1}),
        ("Mul", ["c", "c"], "q", {}),
        SUM,
    ]
    step = Step(model_of(nodes, {}, ["l"], weights), spec_of("output:l"), tmp_path)
    step.step({}, learning_rate=1.0)
    v, u = weights["v"], weights["u"]
    np.testing.assert_allclose(step.state["v"], v - 6 * v - 2 * (v @ u) * u.T, rtol=1e-4)
