"""Long attention in inference: one operation with a kernel, on one device and on several."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from without_kernels import without_kernels

from tensoropt import load
from tensoropt.compiler.cli.opt import main
from tensoropt.compiler.cost.device import load_device
from tensoropt.dialects import onnx as views
from tensoropt.runtime.cli.run import main as run

B, H, T, D = 2, 4, 160, 8
W = H * D
FORMS = {
    "plain": "m = Identity (t)",
    "causal": "m = Where (earlier, t, low)",
    "a mask of keys, some texts without any": "m = Where (seen, t, low)",
    "a limit of scores": """
        u = Div (t, cap) a = Tanh (u) c = Mul (a, cap) m = Where (earlier, c, low)""",
    "terms": "m = Add (t, bias)",
}


def model(folder: Path, form: str, kind: str = "float", tokens: int = T) -> Path:
    """Write a layer of attention with weights, and the given operations from `t` to `m`."""
    lines = "".join(
        f"""
        {name}p = MatMul (x, w{name})
        {name}h = Reshape (p{name}, by_head)
        {name} = Transpose <perm = [0, 2, 1, 3]> ({name}h)""".replace(f"(p{name}", f"({name}p")
        for name in "qkv"
    )
    text = f"""
        <ir_version: 10, opset_import: ["" : 20]>
        layer ({kind}[{B}, {tokens}, {W}] x, bool[{B}, 1, 1, {tokens}] seen,
               {kind}[1, {H}, {tokens}, {tokens}] bias) => ({kind}[{B}, {tokens}, {W}] y) {{
        {lines}
        kt = Transpose <perm = [0, 1, 3, 2]> (k)
        s = MatMul (q, kt)
        t = Mul (s, scale)
        {form}
        p = Softmax <axis = -1> (m)
        z = MatMul (p, v)
        back = Transpose <perm = [0, 2, 1, 3]> (z)
        flat = Reshape (back, whole)
        y = MatMul (flat, wo)
        }}"""
    made = parser.parse_model(text)
    rng, element = np.random.default_rng(0), np.float16 if kind == "float16" else np.float32
    tensors = {f"w{n}": (rng.standard_normal((W, W)) / 4).astype(element) for n in "qkvo"} | {
        "by_head": np.array([B, tokens, H, D]),
        "whole": np.array([B, tokens, W]),
        "earlier": np.tri(tokens, dtype=bool),
        "scale": np.array(0.4, element),
        "cap": np.array(2.0, element),
        "low": np.array(np.finfo(element).min, element),
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


@pytest.mark.parametrize("form", FORMS)
def test_ranks_compute_the_model(form: str, capsys, tmp_path: Path) -> None:
    path = model(tmp_path, FORMS[form])
    inputs = {
        "x": np.random.default_rng(1).standard_normal((B, T, W)).astype(np.float32),
        "seen": np.arange(T) < np.array([70, 0]).reshape(B, 1, 1, 1),
        "bias": np.random.default_rng(2).standard_normal((1, H, T, T)).astype(np.float32),
    }
    given = {one.name: inputs[one.name] for one in onnx.load(path).graph.input}
    np.savez(tmp_path / "inputs.npz", **given)
    for mesh in ("1", "2", "2x2"):
        plan = tmp_path / mesh
        assert main([str(path), "--mesh", mesh, "--pick", "leanest", "-o", str(plan)]) == 0
        assert operators(plan)["Attention"] >= 1
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


def test_two_masks_and_short_attention_are_kept(tmp_path: Path) -> None:
    two = f"{FORMS['causal'].replace('m =', 'w =')} m = Where (seen, w, low)"
    found = kinds_of(model(tmp_path, two), "cpu")
    assert (found[ATTENTION], found["onnx.Softmax"]) == (0, 1)
    path = model(tmp_path, FORMS["causal"], tokens=32)
    assert not kinds_of(path, "cpu")[ATTENTION]
