"""What is in the folder of a plan for training: graphs that train, and where they start."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

from tensoropt.compiler.cost.compute import work_of
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.program.graph import Op
from tensoropt.compiler.search.frontier.points import pick_point
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.training.spec import Optimizer, TrainingSpec, parse_loss
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.session.elementwise import fuse_elementwise
from tensoropt.runtime.session.types import tensor_types
from tensoropt.runtime.support.arithmetic import ARITHMETIC

Array = npt.NDArray[Any]

ROWS, WIDE, NARROW = 8, 16, 4
SGD = TrainingSpec(parse_loss("mse:y,t"), Optimizer("sgd"))


@pytest.fixture(scope="module")
def weights() -> dict[str, Array]:
    random = np.random.default_rng(3)
    shapes = {"w1": (WIDE, WIDE), "b1": (WIDE,), "w2": (WIDE, NARROW)}
    return {n: random.standard_normal(s).astype(np.float32) / 4 for n, s in shapes.items()}


@pytest.fixture(scope="module")
def model(weights: Mapping[str, Array], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A perceptron of opset 13; output `z`, of input `v`, has nothing to do with the loss."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Add", ["h", "b1"], ["a"], name="bias"),
        helper.make_node("Tanh", ["a"], ["r"], name="tanh"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="second"),
        helper.make_node("Relu", ["v"], ["z"], name="other"),
    ]
    shapes = {"x": [ROWS, WIDE], "v": [3], "y": [ROWS, NARROW], "z": [3]}
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "perceptron", ends[:2], ends[2:], stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    onnx.save(made, path)
    return path


def compiled(
    model: Path, folder: Path, spec: TrainingSpec = SGD, devices: int = 1, pick: str = "fastest"
) -> dict[str, Any]:
    """Write a plan; return its document."""
    written(model, folder, spec, devices, pick)
    document: dict[str, Any] = json.loads((folder / "plan.json").read_text())
    return document


def written(
    model: Path, folder: Path, spec: TrainingSpec, devices: int = 1, pick: str = "fastest"
) -> FrontierPoint:
    """Write a plan; return its point."""
    request = Request(devices, device="v100", epsilon=0.0)
    module = driver.load(model, {}, training=True)
    driver.run_phase(module, "prepare", training=True)
    driver.train(module, BuildTrainingStepPass.from_spec(spec))
    result = driver.frontier(module, request)
    point = pick_point(result.points, pick)
    driver.settle(module, point, request, result)
    driver.compile_plan(module, model, folder)
    return point


def run(path: Path, given: Mapping[str, Array]) -> dict[str, Array]:
    """Run a graph without collectives on those of ``given`` that it reads, all of its inputs."""
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    feeds = {value.name: given[value.name] for value in session.get_inputs()}
    return dict(zip(names, session.run(names, feeds), strict=True))


def loss_and_gradients(
    weights: Mapping[str, Array], x: Array, t: Array
) -> tuple[float, dict[str, Array]]:
    """The same by hand."""
    r = np.tanh(x @ weights["w1"] + weights["b1"])
    d = r @ weights["w2"] - t
    dy = 2 * d / d.size
    da = dy @ weights["w2"].T * (1 - r**2)
    return float((d**2).mean()), {"w1": x.T @ da, "b1": da.sum(0), "w2": r.T @ dy}


def batch(seed: int) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((ROWS, WIDE), dtype=np.float32)
    return x, random.standard_normal((ROWS, NARROW), dtype=np.float32)


def test_both_graphs_make_steps(model: Path, weights: Mapping[str, Array], tmp_path: Path) -> None:
    document = compiled(model, tmp_path / "plan")
    held = {k: v.astype(np.float64) for k, v in weights.items()}
    state: dict[str, Array] = load_file(tmp_path / "plan/weights/rank0.safetensors")
    for seed in range(3):
        x, t = batch(seed)
        loss, gradients = loss_and_gradients(held, x, t)
        made = run(tmp_path / "plan/rank0.onnx", {**state, "x": x, "t": t})
        assert made.pop("loss") == pytest.approx(loss, rel=1e-5)
        rate = np.array(0.5, np.float32)
        new = run(tmp_path / "plan/rank0.update.onnx", {**state, **made, "learning_rate": rate})
        held = {name: w - 0.5 * gradients[name] for name, w in held.items()}
        for row in document["training"]["state"]:
            np.testing.assert_allclose(new[row["result"]], held[row["name"]], rtol=1e-4, atol=1e-6)
            state[row["name"]] = new[row["result"]]


@pytest.mark.parametrize(
    ("optimizer", "pick"),
    [("sgd", "fastest"), ("momentum", "leanest"), ("adam", "fastest"), ("adamw", "leanest")],
)
def test_an_update_is_charged_for_what_its_passes_read_and_write(
    model: Path, tmp_path: Path, optimizer: str, pick: str
) -> None:
    rule = Optimizer(optimizer, weight_decay=0.1 if "adam" in optimizer else 0.0)
    spec = TrainingSpec(SGD.loss, rule, clip_norm=1.0)
    point = written(model, tmp_path / "plan", spec, devices=2, pick=pick)
    charged = [
        work.pass_bytes
        for number, strategy in point.strategies.items()
        for node in [point.tables.graph.nodes[number]]
        if isinstance(node, Op)
        for work in [work_of(node.info, node.rule, strategy, Mesh(point.mesh))]
        if work.pass_bytes is not None
    ]
    update = onnx.load(tmp_path / "plan/rank0.update.onnx")
    assert not set(ARITHMETIC).isdisjoint(node.op_type for node in update.graph.node)
    fuse_elementwise(update)
    types = tensor_types(update.graph)
    passes = [node for node in update.graph.node if node.op_type == "Elementwise"]
    shapes = [types[name][1] for node in passes for name in (*node.input, *node.output)]
    assert sum(charged) == sum(4 * math.prod(shape) for shape in shapes if shape)
    assert passes


def test_micro_batches_add_up(model: Path, weights: Mapping[str, Array], tmp_path: Path) -> None:
    spec = TrainingSpec(SGD.loss, SGD.optimizer, micro_batches=2)
    rows = compiled(model, tmp_path / "plan", spec)["training"]["gradients"]
    sums = {row["accumulator"]: np.zeros_like(weights[row["of"]]) for row in rows}
    expected = dict.fromkeys(weights, 0.0)
    for seed in range(2):
        x, t = batch(seed)
        made = run(tmp_path / "plan/rank0.onnx", {**weights, **sums, "x": x, "t": t})
        sums = {row["accumulator"]: made[row["name"]] for row in rows}
        gradients = loss_and_gradients(weights, x, t)[1]
        expected = {name: expected[name] + gradients[name] / 2 for name in weights}
    for row in rows:
        np.testing.assert_allclose(sums[row["accumulator"]], expected[row["of"]], rtol=1e-4)


def test_a_rank_starts_from_its_part(
    model: Path, weights: Mapping[str, Array], tmp_path: Path
) -> None:
    document = compiled(model, tmp_path / "plan", devices=2, pick="leanest")
    parts = [load_file(tmp_path / f"plan/weights/rank{rank}.safetensors") for rank in range(2)]
    split = 0
    for row in document["training"]["state"]:
        held = [part[row["name"]] for part in parts]
        (placement,) = row["layout"]
        if placement == "R":
            whole = held[0]
        else:
            split += 1
            whole = np.concatenate(held, int(placement[2:-1]))
        np.testing.assert_array_equal(whole, weights[row["name"]])
    assert split


def test_only_what_is_used_is_given_and_given_back(model: Path, tmp_path: Path) -> None:
    spec = TrainingSpec(SGD.loss, Optimizer("adamw"), clip_norm=1.0)
    document = compiled(model, tmp_path / "plan", spec, devices=2)
    training = document["training"]
    for rank in range(2):
        for name, path in (("gradients", "onnx"), ("update", "update.onnx")):
            graph = onnx.load(tmp_path / f"plan/rank{rank}.{path}").graph
            used = {name for node in graph.node for name in node.input}
            given = {value.name for value in graph.input}
            assert given <= used
            state = {row["name"] for row in training["state"] if name in row["read_by"]}
            hyper = {row["name"] for row in training["hyper"] if name in row["graphs"]}
            gradients = {row["name"] for row in training["gradients"]}
            results = {row["result"] for row in training["state"] if row["graph"] == name}
            more = {"x", "t"} if name == "gradients" else gradients
            assert given == state | hyper | more
            back = {"loss", *gradients} if name == "gradients" else set()
            assert {value.name for value in graph.output} == results | back
    assert [row["name"] for row in document["inputs"]] == ["x", "t"]
    assert [row["name"] for row in document["outputs"]] == ["loss"]
    assert sorted(row["role"] for row in training["hyper"]) == ["learning_rate", "step"]
    assert {row["kind"] for row in training["state"]} == {"parameter", "mean", "variance"}


def test_a_frozen_parameter_is_a_weight_of_the_graph(
    model: Path, weights: Mapping[str, Array], tmp_path: Path
) -> None:
    document = compiled(model, tmp_path / "plan", TrainingSpec(SGD.loss, freeze=("w1", "b*")))
    assert [row["name"] for row in document["parameters"]] == ["w1", "b1"]
    assert {row["of"] or row["name"] for row in document["training"]["state"]} == {"w2"}
    graph = onnx.load(tmp_path / "plan/rank0.onnx").graph
    held = {tensor.name: tensor for tensor in graph.initializer}
    w1 = numpy_helper.to_array(held["w1"], str(tmp_path / "plan"))
    np.testing.assert_array_equal(w1, weights["w1"])


def test_the_static_memory_is_that_of_its_parts(model: Path, tmp_path: Path) -> None:
    spec = TrainingSpec(SGD.loss, Optimizer("adam"))
    predicted = compiled(model, tmp_path / "plan", spec)["predicted"]
    trained = 4 * (WIDE * WIDE + WIDE + WIDE * NARROW)
    parts = predicted["static_parts"]
    assert parts["parameters_bytes"] == parts["gradients_bytes"] == trained
    assert (parts["optimizer_bytes"], parts["buffers_bytes"]) == (2 * trained, 0)
    assert 0 < parts["constants_bytes"] < 400
    assert sum(parts.values()) == predicted["static_bytes"]


def test_the_same_model_gives_the_same_bytes(model: Path, tmp_path: Path) -> None:
    plans = []
    for name in ("first", "second"):
        compiled(model, tmp_path / name, devices=2, pick="leanest")
        paths = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        plans.append({p.relative_to(tmp_path / name): p.read_bytes() for p in paths})
    assert plans[0] == plans[1]
    names = [f"{stem}{rank}{end}" for rank in "01" for stem, end in _FILES]
    assert {str(path) for path in plans[0]} == {"plan.json", *names}
    assert set(Plan.load(tmp_path / "first").files) == set(names)


_FILES = (("rank", ".onnx"), ("rank", ".update.onnx"), ("weights/rank", ".safetensors"))


def test_running_statistics_are_buffers_of_the_first_graph(tmp_path: Path) -> None:
    names = ["scale", "bias", "mean", "var"]
    nodes = [
        helper.make_node("BatchNormalization", ["x", *names], ["h"], name="norm"),
        helper.make_node("MatMul", ["h", "w"], ["y"], name="product"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [ROWS, NARROW]) for n in "xy"]
    stored = [numpy_helper.from_array(np.ones(NARROW, np.float32), name) for name in names]
    stored.append(numpy_helper.from_array(np.eye(NARROW, dtype=np.float32), "w"))
    graph = helper.make_graph(nodes, "norm", ends[:1], ends[1:], stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=8)
    onnx.save(made, tmp_path / "model.onnx")
    document = compiled(tmp_path / "model.onnx", tmp_path / "plan")
    held = {row["name"]: row for row in document["training"]["state"]}
    for name in ("mean", "var"):
        assert (held[name]["kind"], held[name]["graph"]) == ("buffer", "gradients")
        assert held[name]["read_by"] == ["gradients"]
    assert document["predicted"]["static_parts"]["buffers_bytes"] == 2 * 4 * NARROW
    start = load_file(tmp_path / "plan/weights/rank0.safetensors")
    assert set(start) == {"w", *names}
