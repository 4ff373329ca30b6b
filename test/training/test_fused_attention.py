"""Attention as one operation: forms that exporters write, on one device and on several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs.gpt import Gpt
from graphs.llama import Llama
from onnx import helper
from torch.nn import functional
from training.simulated import points, relative_error
from training.steps import Array, Node, Step, build, model_of, spec_of

from tensoropt.compiler.report.training import training_notes
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.ops import library_path

B, H, G, T, D = 2, 4, 2, 5, 6
W = H * D
RATE = 0.1
LOSS = "softmax-cross-entropy:scores,labels"
MESHES = [Mesh((2,)), Mesh((2, 2))]
_RNG = np.random.default_rng(3)
_LOW = float(np.finfo(np.float32).min)
_EARLIER = np.tri(T, dtype=bool)
_SEEN = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool).reshape(B, 1, 1, T)
_BIAS = _RNG.standard_normal((1, H, T, T)).astype(np.float32)


def normal(*shape: int) -> Array:
    return (_RNG.standard_normal(shape) / 2).astype(np.float32)


@dataclass
class Form:
    """A way to write attention: the nodes between q, k, v by head and the result y by head.

    ``expected`` are the attributes of the operation; ``torch`` is the same in PyTorch.
    """

    nodes: Sequence[Node]
    torch: Callable[..., Any]
    weights: dict[str, Array] = field(default_factory=dict)
    expected: dict[str, float] = field(default_factory=dict)
    shared: int = H


def _turn(name: str = "k") -> Node:
    return ("Transpose", [name], "kt", {"perm": [0, 1, 3, 2]})


def _end(scores: str) -> list[Node]:
    return [("Softmax", [scores], "p", {"axis": -1}), ("MatMul", ["p", "v"], "y", {})]


def _attend(q: Any, k: Any, v: Any, **options: Any) -> Any:
    return functional.scaled_dot_product_attention(q, k, v, **options)


def _repeat(name: str) -> list[Node]:
    return [
        ("Unsqueeze", [name, "two"], f"{name}1", {}),
        ("Expand", [f"{name}1", "wide"], f"{name}2", {}),
        ("Reshape", [f"{name}2", "by_head"], f"{name}r", {}),
    ]


_SCORES: list[Node] = [_turn(), ("MatMul", ["q", "kt"], "s", {})]
_CAUSAL = np.where(_EARLIER, 0, -np.inf).astype(np.float32)
_LITERALS = {
    "third": np.float32(1 / 3),
    "root": np.float32(0.7),
    "low": np.float32(_LOW),
    "zero": np.float32(0),
    "five": np.float32(5),
    "two": np.array([2]),
    "wide": np.array([B, G, H // G, T, D]),
    "by_head": np.array([B, H, T, D]),
    "flat": np.array([B * H, T, D]),
    "hidden": ~_SEEN,
    "earlier": _EARLIER,
}
FORMS = {
    "plain": Form([*_SCORES, *_end("s")], lambda *x: _attend(*x, scale=1.0)),
    "scaled scores and a mask of bools": Form(
        [*_SCORES, ("Mul", ["s", "third"], "t", {}), ("Where", ["earlier", "t", "low"], "m", {}),
         *_end("m")],
        lambda *x: _attend(*x, scale=1 / 3, is_causal=True),
        expected={"scale": 1 / 3, "causal": 1},
    ),
    "scaled query and key, a mask among the weights": Form(
        [_turn(), ("Mul", ["q", "root"], "qs", {}), ("Mul", ["kt", "root"], "ks", {}),
         ("MatMul", ["qs", "ks"], "s", {}), ("Add", ["s", "mask"], "m", {}), *_end("m")],
        lambda *x: _attend(*x, scale=0.49, is_causal=True),
        {"mask": _CAUSAL},
        {"scale": 0.49, "causal": 1},
    ),
    "rows without keys": Form(
        [*_SCORES, ("Where", ["hidden", "low", "zero"], "b", {}), ("Add", ["s", "b"], "m", {}),
         ("Softmax", ["m"], "p", {"axis": -1}), ("IsNaN", ["p"], "n", {}),
         ("Where", ["n", "zero", "p"], "g", {}), ("MatMul", ["g", "v"], "y", {})],
        lambda *x: _attend(*x, scale=1.0, attn_mask=torch.tensor(_SEEN)),
    ),
    "a trained bias": Form(
        [*_SCORES, ("Add", ["s", "bias"], "m", {}), *_end("m")],
        lambda q, k, v, bias: _attend(q, k, v, scale=1.0, attn_mask=bias),
        {"bias": _BIAS},
    ),
    "a limit of scores": Form(
        [*_SCORES, ("Div", ["s", "five"], "t", {}), ("Tanh", ["t"], "u", {}),
         ("Mul", ["u", "five"], "w", {}), ("Where", ["earlier", "w", "low"], "m", {}), *_end("m")],
        lambda q, k, v: torch.where(
            torch.tensor(_EARLIER), 5 * torch.tanh(q @ k.mT / 5), -torch.inf
        ).softmax(-1) @ v,
        expected={"softcap": 5, "causal": 1, "scale": 1},
    ),
    "repeated key heads": Form(
        [*_repeat("k"), *_repeat("v"), _turn("kr"), ("MatMul", ["q", "kt"], "s", {}),
         ("Softmax", ["s"], "p", {"axis": -1}), ("MatMul", ["p", "vr"], "y", {})],
        lambda *x: _attend(*x, scale=1.0, enable_gqa=True),
        shared=G,
    ),
    "sequences by head": Form(
        [*[("Reshape", [x, "flat"], f"{x}f", {}) for x in "qkv"],
         ("Transpose", ["kf"], "kt", {"perm": [0, 2, 1]}), ("MatMul", ["qf", "kt"], "s", {}),
         ("Softmax", ["s"], "p", {"axis": -1}), ("MatMul", ["p", "vf"], "yf", {}),
         ("Reshape", ["yf", "by_head"], "y", {})],
        lambda *x: _attend(*x, scale=1.0),
    ),
}  # fmt: skip


def _projected(name: str, heads: int) -> list[Node]:
    return [
        ("MatMul", ["x", f"w{name}"], f"{name}p", {}),
        ("Reshape", [f"{name}p", f"heads{heads}"], f"{name}h", {}),
        ("Transpose", [f"{name}h"], name, {"perm": [0, 2, 1, 3]}),
    ]


def _step(form: Form, folder: Path, *, fuses: bool) -> tuple[Step, dict[str, Array], Array]:
    """Return a step of sum(y * y), its weights, and the input."""
    rng = np.random.default_rng(5)
    heads = {"q": H, "k": form.shared, "v": form.shared}
    weights = {
        f"w{name}": (rng.standard_normal((W, count * D)) / 5).astype(np.float32)
        for name, count in heads.items()
    }
    x = rng.standard_normal((B, T, W)).astype(np.float32)
    nodes = [node for name, count in heads.items() for node in _projected(name, count)]
    nodes += [*form.nodes, ("Mul", ["y", "y"], "sq", {})]
    nodes.append(("ReduceSum", ["sq"], "l", {"keepdims": 0}))
    literals = {
        **_LITERALS, **{f"heads{n}": np.array([B, T, n, D]) for n in (H, G)},
    }  # fmt: skip
    model = model_of(nodes, {"x": x}, ["l"], {**weights, **form.weights})
    read = {name for node in model.graph.node for name in node.input}
    for name in sorted(read & literals.keys(), reverse=True):
        value = onnx_tensor(name, literals[name])
        model.graph.node.insert(0, helper.make_node("Constant", [], [name], name, value=value))
    folder.mkdir()
    freeze = ("mask",) if "mask" in form.weights else ()
    spec = spec_of("output:l", "sgd", freeze=freeze)
    return Step(model, spec, folder, library_path(), fuses=fuses), {**weights, **form.weights}, x


def onnx_tensor(name: str, value: Array) -> Any:
    return helper.make_tensor(
        name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape, value.reshape(-1)
    )


def _operations(module: ir.Module, name: str) -> list[ir.Operation]:
    ops = (op.operation for op in onnx.function(module).regions[0].blocks[0])
    return [op for op in ops if op.name == f"onnx.{name}"]


@pytest.mark.parametrize("name", FORMS)
def test_forms_have_the_gradients_of_pytorch(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    step, weights, x = _step(form, tmp_path / "fused", fuses=True)
    (attention,) = _operations(step.module, onnx.ATTENTION)
    assert not _operations(step.module, "Softmax")
    for key, value in form.expected.items():
        assert onnx.attribute(attention, key) == pytest.approx(value)
    step.step({"x": x}, learning_rate=RATE)
    plain, *_ = _step(form, tmp_path / "plain", fuses=False)
    plain.step({"x": x}, learning_rate=RATE)
    own = {n: torch.tensor(w, requires_grad=n != "mask") for n, w in weights.items()}
    by_head = [
        (torch.tensor(x) @ own[f"w{n}"]).unflatten(-1, (-1, D)).transpose(1, 2) for n in "qkv"
    ]
    form.torch(*by_head, *([own["bias"]] if "bias" in own else [])).square().sum().backward()
    for key in step.state:
        wanted = own[key].grad
        assert wanted is not None
        gradient = (weights[key] - step.state[key]) / RATE
        np.testing.assert_allclose(gradient, wanted.numpy(), 2e-3, 2e-3)
        np.testing.assert_allclose(step.state[key], plain.state[key], 1e-3, 1e-4)


def _gpt(folder: Path, **sizes: Any) -> Path:
    given = {"layers": 1, "width": 16, "heads": 4, "vocabulary": 32, "sequence": 16, "batch": 4}
    return Gpt(dtype="float32", **{**given, **sizes}).build("gpt").save(folder, seed=0)


def _llama(folder: Path) -> Path:
    made = Llama(
        layers=1, width=16, heads=4, groups=2, inner=24, vocabulary=32, sequence=16, batch=2,
        dtype="float32",
    )  # fmt: skip
    return made.build("llama").save(folder, seed=0)


def _dropped_gpt(folder: Path) -> Path:
    """Return a model in which masks of weights have seeds of rows and of keys in both steps."""
    return _gpt(folder, attention_dropout=0.3, sequence=32, batch=2)


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("make", [_gpt, _llama, _dropped_gpt])
def test_plans_compute_the_step_of_separate_operations(
    make: Callable[[Path], Path], mesh: Mesh, tmp_path: Path
) -> None:
    path = make(tmp_path)
    step = build(path, spec_of(LOSS), fuses=True)
    for point in [point for seed in range(3) for point in points(step, mesh, seed=seed)]:
        error = relative_error(
            lambda: build(path, spec_of(LOSS), fuses=True), point, 32,
            reference=lambda: build(path, spec_of(LOSS)),
        )  # fmt: skip
        assert error < 1e-4


def test_long_attention_is_no_longer_in_blocks(tmp_path: Path) -> None:
    path = _gpt(tmp_path, sequence=72)
    assert _operations(build(path, spec_of(LOSS)), onnx.BLOCKED_ATTENTION)
    step = build(path, spec_of(LOSS), fuses=True)
    assert not _operations(step, onnx.BLOCKED_ATTENTION)
    assert len(_operations(step, onnx.ATTENTION)) == 1


def test_other_types_are_kept(tmp_path: Path) -> None:
    narrow = build(_gpt(tmp_path), spec_of(LOSS, precision="float16"), fuses=True)
    assert not _operations(narrow, onnx.ATTENTION)


def test_dropout_is_part_of_the_operation(tmp_path: Path) -> None:
    step = build(_dropped_gpt(tmp_path), spec_of(LOSS), fuses=True)
    (attention,) = _operations(step, onnx.ATTENTION)
    (gradient,) = _operations(step, onnx.ATTENTION_GRADIENT)
    assert onnx.attribute(attention, "drop_scale") == pytest.approx(1 / 0.7)
    assert list(gradient.operands)[-2:] == list(attention.operands)[-2:]
    assert not _operations(step, "Softmax")
    assert not _operations(step, onnx.ATTENTION_WITH_DROPOUT)


@pytest.mark.parametrize("ratio", [0.0, None])
def test_a_ratio_may_be_zero_or_omitted(ratio: float | None, tmp_path: Path) -> None:
    ratios = [] if ratio is None else ["zero"]
    nodes: list[Node] = [
        *_SCORES, ("Softmax", ["s"], "p", {"axis": -1}), ("Dropout", ["p", *ratios], "d", {}),
        ("MatMul", ["d", "v"], "y", {}),
    ]  # fmt: skip
    step, *_ = _step(Form(nodes, lambda *x: _attend(*x, scale=1.0)), tmp_path / "m", fuses=True)
    (attention,) = _operations(step.module, onnx.ATTENTION)
    scale = onnx.attribute(attention, "drop_scale")
    assert scale is None if ratio == 0 else scale == 2


def test_a_ratio_of_the_graph_and_a_mask_that_is_read_are_kept(tmp_path: Path) -> None:
    ends: dict[str, list[Node]] = {
        "ratio": [("Sigmoid", ["l0"], "r", {}), ("Dropout", ["p", "r"], "d", {})],
        "twice": [("Dropout", ["p"], "e", {}), ("Dropout", ["e"], "d", {})],
    }
    for name, end in ends.items():
        nodes: list[Node] = [
            *_SCORES, ("ReduceMean", ["s"], "l0", {"keepdims": 0}),
            ("Softmax", ["s"], "p", {"axis": -1}), *end, ("MatMul", ["d", "v"], "y", {}),
        ]  # fmt: skip
        step, *_ = _step(Form(nodes, lambda *x: _attend(*x)), tmp_path / name, fuses=True)
        assert not _operations(step.module, onnx.ATTENTION)
        assert _operations(step.module, "Softmax")


def test_no_note_if_all_is_fused(tmp_path: Path) -> None:
    path = _gpt(tmp_path)
    notes = training_notes(
        build(path, spec_of(LOSS)), build(path, spec_of(LOSS), fuses=True), "float32", ()
    )
    assert not [note for note in notes if "keeps its scores" in note]
