"""Long sequences that are split on real ranks: keys and values travel in a ring."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from graphs.llama import Llama
from onnx import helper, numpy_helper
from train_runs import difference, run_plan
from without_kernels import without_kernels

from tensoropt import Session
from tensoropt.compiler.cli.opt import main
from tensoropt.runtime.inference.jobs import check_plans

_RING = ["--pin", "node:*Attention=sequence"]
_TRAIN = ["--train", "--loss", "softmax-cross-entropy:scores,labels", "--optimizer", "sgd"]
_CLASSES, _ROWS, _LONG = 32, 96, 272


def _decoder(folder: Path) -> Path:
    """Write a LLaMA of one layer, with products and a softmax and heads of 4 elements."""
    made = Llama(
        layers=1, width=16, heads=4, groups=2, inner=24, vocabulary=_CLASSES, sequence=_ROWS,
        batch=1, dtype="float32",
    )  # fmt: skip
    return made.build("llama").save(folder, seed=0)


def _operator(folder: Path) -> Path:
    """Write a causal attention operator of grouped queries between products."""
    rng = np.random.default_rng(0)
    widths = {"q": 16, "k": 8, "v": 8, "o": 16}
    attributes = {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1}
    nodes = [helper.make_node("MatMul", ["x", f"w{n}"], [n], name=n) for n in "qkv"]
    nodes += [
        helper.make_node("Attention", ["q", "k", "v"], ["a"], name="Attention", **attributes),
        helper.make_node("MatMul", ["a", "wo"], ["y"], name="o"),
    ]
    weights = [
        numpy_helper.from_array(rng.standard_normal((16, n)).astype(np.float32), f"w{name}")
        for name, n in widths.items()
    ]
    kind = onnx.TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info("x", kind, (1, _ROWS, 16))]
    outputs = [helper.make_tensor_value_info("y", kind, (1, _ROWS, 16))]
    graph = helper.make_graph(nodes, "attention", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    path = folder / "attention.onnx"
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("make", [_decoder, _operator])
def test_ranks_attend_to_all_keys(make: object, devices: int, tmp_path: Path) -> None:
    assert callable(make)
    path, plan = make(tmp_path), tmp_path / "plan"
    on = ["--device", str(without_kernels(tmp_path)), "--mesh", str(devices)]
    assert main([str(path), *on, *_RING, "-o", str(plan)]) == 0
    graph = onnx.load(plan / "rank0.onnx", load_external_data=False).graph
    kinds = [node.op_type for node in graph.node]
    assert kinds.count("CollectivePermute") >= 2 * (devices - 1)
    assert "Attention" not in kinds
    (result,) = check_plans([plan], path, threads=1, timeout_s=120)
    assert (result.error, result.passed) == (None, True)


@pytest.mark.parametrize("devices", [2, 4])
def test_losses_are_those_of_one_device(devices: int, tmp_path: Path) -> None:
    path, rng = _decoder(tmp_path), np.random.default_rng(0)
    shape = (4, _ROWS)
    data = tmp_path / "data.npz"
    np.savez(data, **{n: rng.integers(0, _CLASSES, shape) for n in ("ids", "labels")})
    losses = []
    for count, pins in ((1, []), (devices, _RING)):
        plan = tmp_path / str(count)
        assert main([str(path), *_TRAIN, "--mesh", str(count), *pins, "-o", str(plan)]) == 0
        losses.append(run_plan(plan, data, 4, 1e-3, threads=1).losses)
    assert difference(*losses) < 1e-4


def _prompt(folder: Path, *, packed: bool) -> Path:
    """Write GroupQueryAttention of a prompt with rotary positions, and its empty caches."""
    rng, kind = np.random.default_rng(0), onnx.TensorProto.FLOAT
    angles = np.arange(_LONG)[:, None] / 100.0 ** (np.arange(8) / 8)
    widths = {"qkv": 128} if packed else {"q": 64, "k": 32, "v": 32}
    weights = {f"w{name}": rng.standard_normal((16, n)) for name, n in widths.items()}
    weights |= {"cosines": np.cos(angles), "sines": np.sin(angles)}
    nodes = [helper.make_node("MatMul", ["x", f"w{n}"], [n], name=n) for n in widths]
    read = ["qkv", "", ""] if packed else ["q", "k", "v"]
    read += ["past_key", "past_value", "lengths", "total", "cosines", "sines"]
    attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "domain": "com.microsoft"}
    made = ["y", "present_key", "present_value"]
    nodes.append(
        helper.make_node("GroupQueryAttention", read, made, name="Attention", **attributes)
    )
    held = [numpy_helper.from_array(x.astype(np.float32), name) for name, x in weights.items()]
    held.append(numpy_helper.from_array(np.array(_LONG, np.int32), "total"))
    shapes = {"x": (2, _LONG, 16), **dict.fromkeys(("past_key", "past_value"), (2, 2, 0, 16))}
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]
    inputs.append(helper.make_tensor_value_info("lengths", onnx.TensorProto.INT32, (2,)))
    shapes = {"y": (2, _LONG, 64), **dict.fromkeys(made[1:], (2, 2, _LONG, 16))}
    outputs = [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "prompt", inputs, outputs, held)
    path = folder / "prompt.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


@pytest.mark.parametrize(("devices", "packed"), [(2, False), (4, True)])
def test_prompts_may_end_early(devices: int, packed: bool, tmp_path: Path) -> None:
    path, plan, rng = _prompt(tmp_path, packed=packed), tmp_path / "plan", np.random.default_rng(1)
    assert main([str(path), "--mesh", str(devices), *_RING, "-o", str(plan)]) == 0
    whole = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    given = {"x": rng.standard_normal((2, _LONG, 16)).astype(np.float32)}
    given |= dict.fromkeys(("past_key", "past_value"), np.zeros((2, 2, 0, 16), np.float32))
    with Session(plan, threads=1) as session:
        caches = {tensor.name: tensor.layout.layout.texts for tensor in session.outputs[1:]}
        assert caches == {key: ["S(2)"] for key in ("present_key", "present_value")}
        for lengths in ((_LONG, _LONG), (_LONG, 150)):
            inputs = {**given, "lengths": np.array(lengths, np.int32) - 1}
            found = session.run(inputs)
            expected = dict(zip(found, whole.run(list(found), inputs), strict=True))
            for row, length in enumerate(lengths):
                for name, held in found.items():
                    got, wanted = held[row], expected[name][row]
                    used = np.s_[:length] if name == "y" else np.s_[:, :length]
                    np.testing.assert_allclose(got[used], wanted[used], rtol=1e-3, atol=1e-4)
