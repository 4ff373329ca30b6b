"""Long attention in inference: one operation with a kernel, on one device and on several."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser
from without_kernels import without_kernels

from tensoropt import load
from tensoropt.compiler.cli.opt import main
from tensoropt.compiler.cost.device import load_device
from tensoropt.dialects import onnx as views
from tensoropt.runtime.cli.run import main as run
from tensoropt.runtime.support.collectives import DOMAIN

B, H, T, D = 2, 4, 160, 8
W = H * D
FORMS = {
    "plain": "m = Identity (t)",
    "causal": "m = Where (earlier, t, low)",
    "a mask of keys, some texts without any": "m = Where (seen, t, low)",
    "a limit of scores": """
        u = Div (t, cap) a = Tanh (u) c = Mul (a, cap) m = Where (earlier, c, low)""",
    "terms": "m = Add (t, bias)",
    "two masks, some texts without keys": "w = Where (earlier, t, low) m = Where (seen, w, low)",
    "two masks, the causal one of -inf": "w = Where (earlier, t, none) m = Add (w, bias)",
    "the least number for all keys of a row": "w = Where (seen, zero, low) m = Add (t, w)",
}
OPERATORS = {
    "Attention": "z = Attention <scale = 0.4, is_causal = 1> (q, k, v, bias)",
    "Attention, a causal mask": """
        c = ConstantOfShape <value = bool[1] {1}> (square)
        e = Trilu <upper = 0> (c)
        z = Attention <scale = 0.4> (q, k, v, e)""",
    "Attention, some texts without keys": """
        e = And (seen, earlier)
        z = Attention <scale = 0.4> (q, k, v, e)""",
    "Attention, packed": f"""
        r = Attention <q_num_heads = {H}, kv_num_heads = {H}, softcap = 2.0> (qp, kp, vp)
        g = Reshape (r, by_head)
        z = Transpose <perm = [0, 2, 1, 3]> (g)""",
    "MultiHeadAttention": f"""
        r = com.microsoft.MultiHeadAttention <num_heads = {H}, unidirectional = 1>
                (qp, kp, vp, , lengths)
        g = Reshape (r, by_head)
        z = Transpose <perm = [0, 2, 1, 3]> (g)""",
}


def model(folder: Path, form: str, kind: str = "float", tokens: int = T) -> Path:
    """Write a layer of attention with weights: an operator, or operations from `t` to `m`."""
    lines = "".join(
        f"""
        {name}p = MatMul (x, w{name})
        {name}h = Reshape (p{name}, by_head)
        {name} = Transpose <perm = [0, 2, 1, 3]> ({name}h)""".replace(f"(p{name}", f"({name}p")
        for name in "qkv"
    )
    attention = form
    if "z =" not in form:
        attention = f"""
        kt = Transpose <perm = [0, 1, 3, 2]> (k)
        s = MatMul (q, kt)
        t = Mul (s, scale)
        {form}
        p = Softmax <axis = -1> (m)
        z = MatMul (p, v)"""
    text = f"""
        <ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
        layer ({kind}[{B}, {tokens}, {W}] x, bool[{B}, 1, 1, {tokens}] seen,
               {kind}[1, {H}, {tokens}, {tokens}] bias) => ({kind}[{B}, {tokens}, {W}] y) {{
        {lines}
        {attention}
        back = Transpose <perm = [0, 2, 1, 3]> (z)
        flat = Reshape (back, whole)
        y = MatMul (flat, wo)
        }}"""
    made = parser.parse_model(text)
    rng, element = np.random.default_rng(0), np.float16 if kind == "float16" else np.float32
    tensors = {f"w{n}": (rng.standard_normal((W, W)) / 4).astype(element) for n in "qkvo"} | {
        "by_head": np.array([B, tokens, H, D]),
        "square": np.array([tokens, tokens]),
        "whole": np.array([B, tokens, W]),
        "earlier": np.tri(tokens, dtype=bool),
        "scale": np.array(0.4, element),
        "cap": np.array(2.0, element),
        "low": np.array(np.finfo(element).min, element),
        "none": np.array(-np.inf, element),
        "zero": np.array(0, element),
        "lengths": np.array([70, tokens], np.int32),
    }
    used = {name for node in made.graph.node for name in node.input}
    for value in [one for one in made.graph.input if one.name not in used]:
        made.graph.input.remove(value)
    made.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in tensors.items() if name in used
    )
    for number, node in enumerate(made.graph.node):
        node.name = f"n{number}"
    onnx.save(made, folder / "layer.onnx")
    return folder / "layer.onnx"


def operators(plan: Path) -> Counter[str]:
    return Counter(n.op_type for n in onnx.load(plan / "rank0.onnx").graph.node)


def kernels(plan: Path) -> int:
    """Return the number of attention nodes of ours."""
    nodes = onnx.load(plan / "rank0.onnx").graph.node
    return sum((n.domain, n.op_type) == (DOMAIN, "Attention") for n in nodes)


@pytest.mark.parametrize("form", [*FORMS, *OPERATORS])
def test_ranks_compute_the_model(form: str, capsys, tmp_path: Path) -> None:
    path = model(tmp_path, (FORMS | OPERATORS)[form])
    inputs = {
        "x": np.random.default_rng(1).standard_normal((B, T, W)).astype(np.float32),
        "seen": np.arange(T) < np.array([70, 0]).reshape(B, 1, 1, 1),
        "bias": np.random.default_rng(2).standard_normal((1, H, T, T)).astype(np.float32),
    }
    given = {one.name: inputs[one.name] for one in onnx.load(path).graph.input}
    np.savez(tmp_path / "inputs.npz", **given)
    for mesh in ("1", "2x2"):
        plan = tmp_path / mesh
        assert main([str(path), "--mesh", mesh, "--pick", "leanest", "-o", str(plan)]) == 0
        assert kernels(plan) >= 1
        assert not operators(plan)["Softmax"]
        check = ["--check", str(path), "--inputs", str(tmp_path / "inputs.npz")]
        assert run([str(plan), *check]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "PASSED"


def kinds_of(path: Path, device: str, *, reads_inputs: bool = False) -> Counter[str]:
    """Return the operations of the program that is searched for a device."""
    model_, described = load(path), load_device(device)
    if reads_inputs:
        assert model_.inputs
    module = model_.program(device=described).module
    return Counter(op.operation.name for op in views.function(module).regions[0].blocks[0])


ATTENTION = f"onnx.{views.ATTENTION}"


def test_devices_decide(tmp_path: Path) -> None:
    path = model(tmp_path, FORMS["causal"])
    assert kinds_of(path, "cpu")[ATTENTION] == 1
    assert kinds_of(path, "cpu", reads_inputs=True)[ATTENTION] == 1
    assert not kinds_of(path, "h100")[ATTENTION]  # elements of float32
    found = kinds_of(path, str(without_kernels(tmp_path)))
    assert (found[ATTENTION], found[f"onnx.{views.BLOCKED_ATTENTION}"]) == (0, 1)


def test_gpus_take_forms_without_a_gradient(tmp_path: Path) -> None:
    path = model(tmp_path, FORMS["a limit of scores"], "float16")
    assert kinds_of(path, "a100")[ATTENTION] == 1
    assert kinds_of(path, "h100")[ATTENTION] == 1
    assert not kinds_of(path, "v100")[ATTENTION]
    assert not kinds_of(path, "cpu")[ATTENTION]


def test_short_attention_and_dropout_are_kept(tmp_path: Path) -> None:
    for form in (FORMS["causal"], OPERATORS["Attention"], OPERATORS["MultiHeadAttention"]):
        assert not kinds_of(model(tmp_path, form, tokens=32), "cpu")[ATTENTION]
    path = model(tmp_path, FORMS["causal"])
    drawn = onnx.load(path)
    softmax = next(node for node in drawn.graph.node if node.op_type == "Softmax")
    softmax.output[0] = "weights"
    place = [*drawn.graph.node].index(softmax) + 1
    drawn.graph.node.insert(
        place, helper.make_node("Dropout", ["weights", "ratio", "drops"], ["p"], "drop")
    )
    for name, value in (("ratio", np.float32(0.5)), ("drops", np.True_)):
        drawn.graph.initializer.append(numpy_helper.from_array(np.array(value), name))
    onnx.save(drawn, path)
    kinds = kinds_of(path, "cpu")
    assert (kinds[ATTENTION], kinds[f"onnx.{views.ATTENTION_WITH_DROPOUT}"]) == (0, 0)
    assert kinds["onnx.Dropout"] == 1


def test_operators_are_kept_on_gpus(tmp_path: Path) -> None:
    kinds = kinds_of(model(tmp_path, OPERATORS["Attention"], "float16"), "h100")
    assert (kinds["onnx.Attention"], kinds[ATTENTION]) == (1, 0)


def test_a_causal_mask_of_an_operator_becomes_an_attribute(tmp_path: Path) -> None:
    path = model(tmp_path, OPERATORS["Attention, a causal mask"])
    assert main([str(path), "--devices", "1", "-o", str(tmp_path / "plan")]) == 0
    nodes = onnx.load(tmp_path / "plan" / "rank0.onnx").graph.node
    (node,) = (n for n in nodes if n.op_type == "Attention")
    assert {a.name: a.i for a in node.attribute}["causal"] == 1
    assert len(node.input) == 3
