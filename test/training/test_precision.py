"""Mixed precision: what computes in which type, and what comes out, beside torch.autocast."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from steps import Array, Node, Step, build, model_of, spec_of

from tensoropt.dialects.kernels import count_missing_kernels
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import function, node_name, walk

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 6)).astype(np.float32)
WEIGHTS: dict[str, Array] = {
    "w0": RNG.standard_normal((6, 16)).astype(np.float32) / 2,
    "b0": RNG.standard_normal(16).astype(np.float32) / 4,
    "w1": RNG.standard_normal((16, 5)).astype(np.float32) / 3,
    "b1": RNG.standard_normal(5).astype(np.float32) / 4,
}
NODES: list[Node] = [
    ("MatMul", ["x", "w0"], "m0", {}),
    ("Add", ["m0", "b0"], "a0", {}),
    ("Relu", ["a0"], "r", {}),
    ("MatMul", ["r", "w1"], "m1", {}),
    ("Add", ["m1", "b1"], "a1", {}),
    ("Softmax", ["a1"], "p", {"axis": -1}),
    ("Mul", ["p", "x1"], "q", {}),
    ("ReduceSum", ["q"], "l", {"keepdims": 0}),
]
X1 = RNG.standard_normal((8, 5)).astype(np.float32)
FEEDS = {"x": X, "x1": X1}
RATE, STEPS = 0.1, 5


def model() -> onnx.ModelProto:
    return model_of(NODES, FEEDS, ["l"], WEIGHTS)


def run(folder: Path, scale: float | None = None, **held: str) -> tuple[list[float], Step]:
    step = Step(model(), spec_of("output:l", **held), folder)
    hyper = {} if scale is None else {"loss_scale": scale}
    losses = [step.step(FEEDS, learning_rate=RATE, **hyper)[0] for _ in range(STEPS)]
    return losses, step


def in_autocast() -> tuple[list[float], dict[str, Array]]:
    held = {name: torch.tensor(w, requires_grad=True) for name, w in WEIGHTS.items()}
    optimizer, losses = torch.optim.SGD(held.values(), lr=RATE), []
    x, x1 = torch.tensor(X), torch.tensor(X1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            r = torch.relu(x @ held["w0"] + held["b0"])
            loss = (torch.softmax((r @ held["w1"] + held["b1"]).float(), -1) * x1).sum()
        (loss * 1024).backward()
        for w in held.values():
            assert w.grad is not None
            w.grad /= 1024
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, {name: w.detach().numpy() for name, w in held.items()}


def elements(module: ir.Module) -> dict[str, str]:
    """Return the element type of the first result of each named op."""
    return {
        node_name(view.operation) or "": str(view.operation.results[0].type.element_type)
        for view in list(function(module).regions[0].blocks[0])[:-1]
    }


@pytest.mark.parametrize(("precision", "text"), [("float16", "f16"), ("bfloat16", "bf16")])
def test_what_computes_in_which_type(precision: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model().SerializeToString())
    found = elements(build(path, spec_of("output:l", precision=precision)))
    narrow = ("m0", "a0", "r", "m1", "a1")
    assert {name: found[name] for name in narrow} == dict.fromkeys(narrow, text)
    wide = ("p", "q", "l", *(f"{name}.grad.Identity" for name in WEIGHTS))
    assert {name: found[name] for name in wide} == dict.fromkeys(wide, "f32")


def test_losses_and_weights_are_near_those_of_float32_and_of_autocast(tmp_path: Path) -> None:
    """ONNX Runtime computes float16 in float32 on a CPU, and drops casts to it and back."""
    folders = [tmp_path / name for name in ("wide", "narrow")]
    for folder in folders:
        folder.mkdir()
    wide, exact = run(folders[0])
    narrow, rounded = run(folders[1], scale=1024.0, precision="float16")
    expected, weights = in_autocast()
    np.testing.assert_allclose(narrow, wide, 1e-2)
    np.testing.assert_allclose(narrow, expected, 1e-2)
    for name in WEIGHTS:
        assert rounded.state[name].dtype == np.float32
        np.testing.assert_allclose(rounded.state[name], exact.state[name], 1e-2, 2e-3)
        np.testing.assert_allclose(rounded.state[name], weights[name], 1e-2, 2e-3)


def test_the_loss_scale_cancels(tmp_path: Path) -> None:
    found = []
    for scale in (1.0, 4096.0):
        folder = tmp_path / str(scale)
        folder.mkdir()
        found.append(run(folder, scale=scale, precision="float16", clip_norm=0.1)[0])
    np.testing.assert_allclose(*found, 1e-2)


def test_a_parameter_is_cast_once_and_a_literal_stays_finite(tmp_path: Path) -> None:
    mask = np.array(-3e38, np.float32)
    nodes: list[Node] = [
        ("MatMul", ["x", "w0"], "m0", {}),
        ("Constant", [], "low", {"value": onnx.numpy_helper.from_array(mask)}),
        ("Max", ["m0", "low"], "a", {}),
        ("MatMul", ["x", "w0"], "m1", {}),
        ("Mul", ["a", "m1"], "q", {}),
        ("ReduceSum", ["q"], "l", {"keepdims": 0}),
    ]
    path = tmp_path / "model.onnx"
    held = model_of(nodes, {"x": X}, ["l"], {"w0": WEIGHTS["w0"]})
    path.write_bytes(held.SerializeToString())
    text = str(build(path, spec_of("output:l", precision="float16")))
    casts = [line for line in text.splitlines() if "6x16xf32>) -> tensor<6x16xf16>" in line]
    assert len(casts) == 1
    assert "dense<-6.550400e+04> : tensor<f16>" in text


def test_tables_are_looked_up_before_they_are_cast(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("Gather", ["table", "ids"], "e", {}),
        ("MatMul", ["e", "w0"], "q", {}),
        ("ReduceSum", ["q"], "l", {"keepdims": 0}),
    ]
    table = RNG.standard_normal((50, 6)).astype(np.float32)
    feeds = {"ids": np.array([3, 1, 4])}
    held = model_of(nodes, feeds, ["l"], {"table": table, "w0": WEIGHTS["w0"]})
    step = Step(held, spec_of("output:l", precision="float16"), tmp_path)
    assert "tensor<50x6xf16>" not in str(step.module)
    step.step(feeds, learning_rate=1.0, loss_scale=1.0)
    changed = np.abs(step.state["table"] - table).sum(1)
    assert np.flatnonzero(changed).tolist() == [1, 3, 4]


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_inputs_and_labels_stay_as_they_were(precision: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(NODES[:5], {"x": X}, ["a1"], WEIGHTS).SerializeToString())
    module = build(path, spec_of("mse:a1,y", precision=precision))  # which holds the attributes
    signature = function(module).attributes
    kinds = dict(
        zip(
            (own["topt.name"].value for own in signature["arg_attrs"]),
            map(str, signature["function_type"].value.inputs),
            strict=True,
        )
    )
    assert kinds["x"] == "tensor<8x6xf32>"
    assert kinds["y"] == "tensor<8x5xf32>"


def test_a_mean_of_squares_in_float16(tmp_path: Path) -> None:
    held = model_of(NODES[:5], {"x": X}, ["a1"], WEIGHTS)
    step = Step(held, spec_of("mse:a1,y", precision="float16"), tmp_path)
    (loss,) = step.step({"x": X, "y": X1}, learning_rate=0.1, loss_scale=1.0)
    a1 = np.maximum(X @ WEIGHTS["w0"] + WEIGHTS["b0"], 0) @ WEIGHTS["w1"] + WEIGHTS["b1"]
    np.testing.assert_allclose(loss, np.mean((a1 - X1) ** 2), 1e-2)


def test_bfloat16_needs_more_than_a_cpu(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"NOT_IMPLEMENTED|[Cc]ould not find an implementation"):
        Step(model(), spec_of("output:l", precision="bfloat16"), tmp_path)


def test_branches_read_float32(tmp_path: Path) -> None:
    helper = onnx.helper

    def branch(name: str) -> onnx.GraphProto:
        out = [onnx.ValueInfoProto(name=name)]
        return helper.make_graph([helper.make_node("Exp", ["m"], [name])], name, [], out)

    nodes: list[Node] = [
        ("MatMul", ["x", "v"], "m", {}),
        ("If", ["c"], "g", {"then_branch": branch("t"), "else_branch": branch("e")}),
        ("MatMul", ["g", "w0"], "q", {}),
        ("ReduceSum", ["q"], "l", {"keepdims": 0}),
    ]
    feeds = {"x": X, "c": np.array(True)}
    v = np.eye(6, dtype=np.float32) / 2
    held = model_of(nodes, feeds, ["l"], {"v": v, "w0": WEIGHTS["w0"]})
    spec = spec_of("output:l", precision="float16", freeze=("v",))
    step = Step(held, spec, tmp_path)
    (loss,) = step.step(feeds, learning_rate=0.1, loss_scale=1.0)
    np.testing.assert_allclose(loss, (np.exp(X / 2) @ WEIGHTS["w0"]).sum(), 1e-2)


def test_gradients_of_weights_are_products_in_bfloat16_and_sums_in_float32(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("MatMul", ["x", "w0"], "m0", {}),
        ("MatMul", ["m0", "w1"], "m1", {}),
        ("ReduceSum", ["m1"], "l", {"keepdims": 0}),
    ]
    feeds = {"x": np.ones((2, 8, 6), np.float32)}
    weights = {name: WEIGHTS[name] for name in ("w0", "w1")}
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(nodes, feeds, ["l"], weights).SerializeToString())
    step = build(path, spec_of("output:l", precision="bfloat16"))
    products = [op for op in walk(function(step)) if op.name == "onnx.Einsum"]
    values = [(*op.operands, *op.results) for op in products]
    kinds = [[str(value.type.element_type) for value in own] for own in values]
    assert sorted(kinds) == [["bf16", "bf16", "bf16"], *[["bf16", "bf16", "f32"]] * 2]
    for op in products:
        if str(op.results[0].type.element_type) == "f32":  # a gradient, not rounded in between
            (use,) = op.results[0].uses
            assert use.owner.operation.name == "onnx.Identity"
    assert not count_missing_kernels(step)


def test_weights_of_a_convolution_have_their_gradient_from_products(tmp_path: Path) -> None:
    """CUDA has no Einsum for bfloat16: one in float32 would take twice the memory and time."""
    weights = {"w": np.ones((4, 8, 3, 3), np.float32)}
    nodes: list[Node] = [
        ("Conv", ["x", "w"], "c", {"pads": [1] * 4}),
        ("ReduceSum", ["c"], "l", {"keepdims": 0}),
    ]
    path = tmp_path / "model.onnx"
    feeds = {"x": np.ones((2, 8, 6, 6), np.float32)}
    proto = model_of(nodes, feeds, ["l"], weights)
    proto.opset_import[0].version = 22  # the first with a Conv of bfloat16
    path.write_bytes(proto.SerializeToString())
    step = build(path, spec_of("output:l", precision="bfloat16"))
    types = defaultdict[str, set[str]](set)
    for op in list(function(step).regions[0].blocks[0])[:-1]:
        types[op.operation.name].add(str(op.operation.results[0].type.element_type))
    assert "onnx.Einsum" not in types
    assert types["onnx.Gemm"] | types["onnx.MatMul"] == {"bf16"}
