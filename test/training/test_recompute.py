"""Recomputation: the gradients stay, and the backward pass reads less of the forward pass."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from steps import Array, Node, Step, build, model_of, spec_of

from tensoropt.compiler.program.graph import Op
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.program.recompute import Recomputation
from tensoropt.compiler.training.spec import RECOMPUTE
from tensoropt.dialects.onnx import arguments, function
from tensoropt.dialects.topt import keys
from tensoropt.passes.pipeline import Pipeline, parse_pipeline
from tensoropt.passes.recompute import RecomputePass
from tensoropt.runtime.ops import library_path

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 5, 8)).astype(np.float32)
LAYERS = 6


def layer(i: int, x: str, y: str) -> list[Node]:
    """Return a residual layer: attention without heads, and two products around a function."""
    return [
        ("MatMul", [x, f"q{i}"], f"{y}.q", {}),
        ("MatMul", [x, f"k{i}"], f"{y}.k", {}),
        ("Einsum", [f"{y}.q", f"{y}.k"], f"{y}.s", {"equation": "bse,bte->bst"}),
        ("Add", [f"{y}.s", "mask"], f"{y}.m", {}),
        ("Softmax", [f"{y}.m"], f"{y}.p", {"axis": -1}),
        ("MatMul", [f"{y}.p", x], f"{y}.a", {}),
        ("Add", [f"{y}.a", x], f"{y}.r", {}),
        ("MatMul", [f"{y}.r", f"u{i}"], f"{y}.u", {}),
        ("Tanh", [f"{y}.u"], f"{y}.t", {}),
        ("Mul", [f"{y}.t", f"{y}.u"], f"{y}.g", {}),
        ("MatMul", [f"{y}.g", f"d{i}"], f"{y}.d", {}),
        ("Add", [f"{y}.d", f"{y}.r"], y, {}),
    ]


def stacked(layers: int = LAYERS, batch: int = 2, rows: int = 5, width: int = 8) -> onnx.ModelProto:
    """Return equal layers between two products with one weight."""
    shapes = {"q": (width, width), "k": (width, width)}
    shapes |= {"u": (width, 2 * width), "d": (2 * width, width)}
    nodes: list[Node] = [("MatMul", ["x", "first"], "h0", {})]
    weights: dict[str, Array] = {"first": _weight(width, width)}
    for i in range(layers):
        nodes += layer(i, f"h{i}", f"h{i + 1}")
        weights |= {f"{name}{i}": _weight(*shape) for name, shape in shapes.items()}
    end: list[Node] = [
        ("MatMul", [f"h{layers}", "first"], "y", {}),
        ("Mul", ["y", "y"], "square", {}),
        ("ReduceSum", ["square"], "l", {"keepdims": 0}),
    ]
    x = np.zeros((batch, rows, width), np.float32)
    inputs = {"x": x, "mask": np.zeros((batch, rows, rows), np.float32)}
    return model_of([*nodes, *end], inputs, ["l"], weights)


def _weight(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32) / np.float32(2 * shape[0] ** 0.5)


def tapering(layers: int = 16) -> onnx.ModelProto:
    """Return a chain of products in which no two layers are alike."""
    widths = range(40, 40 - layers - 1, -1)
    nodes: list[Node] = []
    weights, x = {}, "x"
    for i, (a, b) in enumerate(itertools.pairwise(widths)):
        weights[f"w{i}"] = RNG.standard_normal((a, b)).astype(np.float32) / 6
        nodes += [("MatMul", [x, f"w{i}"], f"m{i}", {}), ("Tanh", [f"m{i}"], f"t{i}", {})]
        nodes += [("Mul", [f"t{i}", f"m{i}"], f"g{i}", {}), ("Relu", [f"g{i}"], f"h{i}", {})]
        x = f"h{i}"
    nodes.append(("ReduceSum", [x], "l", {"keepdims": 0}))
    inputs = RNG.standard_normal((3, 40)).astype(np.float32)
    return model_of(nodes, {"x": inputs}, ["l"], weights)


def noisy(layers: int = 5) -> onnx.ModelProto:
    """Return layers with dropout, and normalization by the statistics of the batch."""
    nodes: list[Node] = []
    weights: dict[str, Array] = {}
    for i in range(layers):
        x, y = f"h{i}" if i else "x", f"h{i + 1}"
        weights[f"w{i}"] = RNG.standard_normal((8, 8)).astype(np.float32) / 2
        for name in ("scale", "shift", "mean", "var"):
            weights[f"{name}{i}"] = RNG.random(8).astype(np.float32) + 0.5
        statistics = [f"{name}{i}" for name in ("scale", "shift", "mean", "var")]
        nodes += [
            ("MatMul", [x, f"w{i}"], f"{y}.m", {}),
            ("BatchNormalization", [f"{y}.m", *statistics], f"{y}.n", {}),
            ("Tanh", [f"{y}.n"], f"{y}.t", {}),
            ("Dropout", [f"{y}.t", "ratio", "on"], f"{y}.d", {}),
            ("Add", [f"{y}.d", x], y, {}),
        ]
    nodes += [("Mul", [y, y], "q", {}), ("ReduceSum", ["q"], "l", {"keepdims": 0})]
    model = model_of(nodes, {"x": X[0].repeat(4, 0)}, ["l"], weights)
    for name, value in {"ratio": np.float32(0.3), "on": np.array(True)}.items():
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    return model


def phases(step: Step) -> dict[str, list[str]]:
    """Return the names of the ops of each phase."""
    found: dict[str, list[str]] = {}
    for view in list(function(step.module).regions[0].blocks[0])[:-1]:
        op = view.operation
        found.setdefault(op.attributes["topt.phase"].value, []).append(op.name)
    return found


def kept(step: Step) -> int:
    """Return how many values of the forward ops the other ops read."""
    values = set()
    for view in list(function(step.module).regions[0].blocks[0])[:-1]:
        op = view.operation
        for value in op.operands:
            made = value.owner
            forward = getattr(made, "attributes", {}).get("topt.phase") if made else None
            if forward is None or forward.value != "forward" or made.name == "onnx.Constant":
                continue
            if op.attributes["topt.phase"].value != "forward":
                values.add(value)
    return len(values)


def feeds(model: onnx.ModelProto) -> dict[str, Array]:
    held = {}
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        held[value.name] = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    return held


@pytest.mark.parametrize("make", [stacked, tapering, noisy])
def test_gradients_stay_and_less_is_kept(make, tmp_path: Path) -> None:
    model, states, counts = make(), {}, {}
    for policy in RECOMPUTE:
        folder = tmp_path / policy
        folder.mkdir()
        step = Step(model, spec_of("output:l", recompute=policy), folder, library_path())
        before = dict(step.state)
        step.step({**feeds(model), "seed": np.int64(7)}, learning_rate=1.0)
        states[policy] = {name: before[name] - step.state[name] for name in before}
        counts[policy] = kept(step)
    for policy in RECOMPUTE[1:]:
        for name, gradient in states["none"].items():
            np.testing.assert_allclose(states[policy][name], gradient, 1e-4, 1e-4)
    assert counts["blocks"] < counts["half"] < counts["none"], counts
    assert counts["blocks"] < counts["light"] < counts["none"], counts


def test_one_tensor_is_kept_per_layer(tmp_path: Path) -> None:
    counts = []
    for layers in (LAYERS, LAYERS + 3):
        folder = tmp_path / str(layers)
        folder.mkdir()
        spec = spec_of("output:l", recompute="blocks")
        counts.append(kept(Step(stacked(layers), spec, folder, library_path())))
    assert counts[1] - counts[0] == 3


def test_clones_follow_and_repeat_their_originals(tmp_path: Path) -> None:
    step = Step(stacked(), spec_of("output:l", recompute="blocks"), tmp_path, library_path())
    ops = {}
    for view in list(function(step.module).regions[0].blocks[0])[:-1]:
        ops[view.operation.attributes["topt.id"].value] = view.operation
    again = [op for op in ops.values() if op.attributes["topt.phase"].value == "recompute"]
    for op in again:
        if op.name == "onnx.tensoropt.Barrier":
            continue
        original = ops[op.attributes["topt.repeats"].value]
        assert original.name == op.name
        assert original.attributes["topt.phase"].value == "forward"
        leader = original.attributes.get("topt.follows") or original.attributes["topt.id"]
        assert op.attributes["topt.follows"].value == leader.value
    # Every clone depends on a barrier, so that none can be merged with its original.
    barred = set()
    for op in again:
        if op.name == "onnx.tensoropt.Barrier" or any(v in barred for v in op.operands):
            barred.update(op.results)
    assert all(set(op.results) <= barred for op in again)


def test_narrow_copies_of_weights_are_made_again_in_blocks(tmp_path: Path) -> None:
    """So that a rank with parts of weights has the whole of them for one layer at a time."""
    model, states, copies = stacked(), {}, {}
    for policy in ("none", "light", "blocks"):
        folder = tmp_path / policy
        folder.mkdir()
        spec = spec_of("output:l", recompute=policy, precision="float16")
        step = Step(model, spec, folder, library_path())
        before = dict(step.state)
        step.step(feeds(model), learning_rate=1.0, loss_scale=1.0)
        states[policy] = {name: before[name] - step.state[name] for name in before}
        block = function(step.module).regions[0].blocks[0]
        barriers = [op for op in block if op.operation.name == "onnx.tensoropt.Barrier"]
        read = {op.operation.operands[0] for op in barriers}
        pairs = arguments(function(step.module))
        copies[policy] = [value for value, own in pairs if keys.STATE.on(own) and value in read]
    for policy in ("light", "blocks"):
        for name, gradient in states["none"].items():
            scale = float(np.abs(gradient).max())
            np.testing.assert_allclose(states[policy][name], gradient, 0, 1e-2 * scale)
    assert not copies["none"]
    assert not copies["light"]
    assert len(copies["blocks"]) >= 4 * (LAYERS - 2)  # not of the last block


@pytest.mark.parametrize(
    ("make", "precision"),
    [(stacked, "float32"), (tapering, "float32"), (noisy, "float32"), (stacked, "float16")],
)
@pytest.mark.parametrize("policy", RECOMPUTE)
def test_the_searched_graph_is_the_graph_of_the_ir(
    make, precision: str, policy: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(make().SerializeToString())
    module = build(path, spec_of("output:l", precision=precision))
    derived = Recomputation(read_graph(module)).derive(policy)
    Pipeline([RecomputePass(policy)]).run(module)
    found = read_graph(module)
    for node, other in zip(found.nodes, derived.nodes, strict=True):
        assert type(node) is type(other)
        ours, theirs = ({**vars(each), "source": None, "rule": None} for each in (node, other))
        assert ours == theirs
        if isinstance(node, Op) and isinstance(other, Op):
            assert replace(node.rule, localize=None) == replace(other.rule, localize=None)
    assert found.values == derived.values


def test_products_are_not_repeated_with_light(tmp_path: Path) -> None:
    step = Step(stacked(), spec_of("output:l", recompute="light"), tmp_path, library_path())
    again = phases(step)["recompute"]
    assert {"onnx.Softmax", "onnx.Tanh"} <= set(again)
    assert not {"onnx.MatMul", "onnx.Einsum"} & set(again)


def test_less_memory_is_held(tmp_path: Path) -> None:
    """As ONNX Runtime runs it: clones wait for the gradient, and what they repeat is freed."""
    peaks = {}
    for policy in ("none", "blocks"):
        command = [sys.executable, Path(__file__).with_name("peak_of_step.py"), policy]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks[policy] = float(done.stdout)
    assert peaks["blocks"] < peaks["none"] / 2, peaks


def test_other_passes_read_the_result(tmp_path: Path) -> None:
    step = Step(stacked(), spec_of("output:l", recompute="blocks"), tmp_path, library_path())
    text = str(step.module)
    passes = "verify-onnx,infer-shapes,fold-constants,dce"
    Pipeline(parse_pipeline(passes, step.module.context)).run(step.module)
    assert str(step.module).count("tensoropt.Barrier") == text.count("tensoropt.Barrier") > 0
