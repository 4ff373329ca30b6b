"""How many micro-batches a step takes, found by the search: what it computes stays the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from unlike_devices import described

import tensoropt as to

BATCH, WIDTH, STEPS, RATE = 64, 32, 4, 0.5
RNG = np.random.default_rng(0)
WEIGHTS = {
    "w": RNG.standard_normal((WIDTH, 4 * WIDTH)).astype(np.float32) / 8,
    "v": RNG.standard_normal((4 * WIDTH, WIDTH)).astype(np.float32) / 8,
}
DATA = {
    name: RNG.standard_normal((BATCH * STEPS, WIDTH)).astype(np.float32) for name in ("x", "labels")
}


def write_model(path: Path, norm: bool = False) -> Path:
    """Write two products and a Relu over any number of samples; ``norm`` adds a normalisation."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "p"),
        helper.make_node("Relu", ["p"], ["r"], "r"),
        helper.make_node("MatMul", ["r", "v"], ["q" if norm else "y"], "q"),
    ]
    weights = dict(WEIGHTS)
    if norm:
        given = ["q", "scale", "bias", "mean", "var"]
        weights |= {name: np.ones(WIDTH, np.float32) for name in given[1:]}
        outs = ["y", "new_mean", "new_var"]
        nodes.append(helper.make_node("BatchNormalization", given, outs, "n", training_mode=1))
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", WIDTH])]
        for name in ("x", "y")
    ]
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", *ends, held)
    imports = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return path


def frontier(path: Path, batches: int | str, samples: int = BATCH, **asked: Any) -> to.Frontier:
    """Return the frontier on one device, unless told otherwise."""
    train = to.Training("mse:y,labels", "sgd", recompute="none", micro_batches=batches)
    asked = {"devices": 1, "epsilon": 0.0, **asked}
    return to.load(path, {"batch": samples}).frontier(train=train, **asked)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "model.onnx")


@pytest.fixture(scope="module")
def losses() -> list[float]:
    """Return the losses of steps on whole batches, by PyTorch."""
    w, v = (torch.tensor(WEIGHTS[name], requires_grad=True) for name in ("w", "v"))
    optimizer, found = torch.optim.SGD([w, v], lr=RATE), []
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        x, labels = (torch.tensor(DATA[name][rows]) for name in ("x", "labels"))
        loss = torch.nn.functional.mse_loss(torch.relu(x @ w) @ v, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


def figures(points: to.Frontier) -> set[tuple[int, float, int]]:
    return {(p.micro_batches, p.time_s, p.process_bytes) for p in points}


@pytest.fixture(scope="module")
def searched(path: Path) -> to.Frontier:
    return frontier(path, "auto")


def test_the_frontier_is_that_of_all_numbers(path: Path, searched: to.Frontier) -> None:
    apart = [frontier(path, number, BATCH // number) for number in (1, 2, 4, 8, 16, 32, 64)]
    every = set().union(*map(figures, apart))
    best = {a for a in every if not any(b[1] <= a[1] and b[2] <= a[2] for b in every - {a})}
    assert figures(searched) <= best  # points closer than the resolution are left out
    assert len(best) > 1


def test_a_limit_of_memory_finds_the_number(path: Path, searched: to.Frontier) -> None:
    limit = searched[1].process_bytes
    assert frontier(path, "1..4", memory=limit).fastest.micro_batches == searched[1].micro_batches
    with pytest.raises(to.UserError, match="nothing fits"):
        frontier(path, 1, memory=limit)


def test_gradients_are_reduced_once(path: Path, tmp_path: Path, losses: list[float]) -> None:
    """Data parallel in four micro-batches: sums stay partial, the update adds them up."""
    pins = ["node:p=batch", "node:q=batch"]
    point = frontier(path, "4..4", mesh=2, devices=None, pins=pins, epsilon=0.1).fastest
    plan = point.compile(tmp_path / "plan")
    made = json.loads((plan.folder / "plan.json").read_text())
    assert made["training"]["micro_batches"] == point.micro_batches == 4
    assert {point["micro_batches"] for point in made["frontier"]} == {4}
    assert [row["layout"] for row in made["training"]["gradients"]] == [["P(sum)"], ["P(sum)"]]
    assert _sends(plan, "rank0.onnx") <= 1  # that of the loss
    assert _sends(plan, "rank0.update.onnx") >= 1
    result = to.train(plan, DATA, STEPS, learning_rate=RATE, threads=1)
    np.testing.assert_allclose(result.losses, losses, rtol=1e-5)


def _sends(plan: to.Plan, file: str) -> int:
    nodes = onnx.load(plan.folder / file).graph.node
    return sum(node.domain == "tensoropt" and "Reduce" in node.op_type for node in nodes)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ("4..2", "expected first..last, such as 1..8, got: '4..2'"),
        ("1..many", "expected a whole number from 1 to"),
        ("33..63", "expected a number that divides 64 samples"),
        ("many", "expected a whole number from 1 to"),
    ],
)
def test_numbers_that_are_none(path: Path, batches: str, message: str) -> None:
    with pytest.raises(to.UserError, match=message):
        frontier(path, batches)


def test_unlike_devices_take_parts_of_the_batch(path: Path, tmp_path: Path) -> None:
    """The number of micro-batches is searched together with the parts."""
    devices = ",".join(
        f"{described(tmp_path, name, speed)}:1" for name, speed in (("fast", 3.0), ("slow", 1.0))
    )
    point = next(own for own in frontier(path, "auto", devices=devices, stages=1) if own.replicas)
    samples = [row.samples or 0 for row in point.replicas]
    assert sum(samples) == BATCH
    assert samples[0] > samples[1]


def test_a_model_of_one_size(path: Path, tmp_path: Path) -> None:
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = BATCH
    onnx.save(model, tmp_path / "fixed.onnx")
    train = to.Training("mse:y,labels", micro_batches="auto")
    with pytest.raises(to.UserError, match=r"begin with one symbolic dimension.*got: 'x' 64"):
        to.load(tmp_path / "fixed.onnx").frontier(2, train=train)


def test_normalisation_over_the_batch(tmp_path: Path) -> None:
    path = write_model(tmp_path / "norm.onnx", norm=True)
    with pytest.raises(to.UserError, match="lets samples meet"):
        frontier(path, "auto")


def test_a_loss_that_is_a_sum(path: Path, tmp_path: Path) -> None:
    """The same model with its loss inside: as a mean it is fine, as a sum it is not."""
    for kind in ("ReduceMean", "ReduceSum"):
        model = onnx.load(path)
        model.graph.node.append(helper.make_node("Mul", ["y", "y"], ["s"], "s"))
        model.graph.node.append(helper.make_node(kind, ["s"], ["l"], "l", keepdims=0))
        model.graph.output.append(helper.make_tensor_value_info("l", TensorProto.FLOAT, []))
        onnx.save(model, tmp_path / f"{kind}.onnx")
        train = to.Training("output:l", "sgd", recompute="none", micro_batches="1..2")
        asked = to.load(tmp_path / f"{kind}.onnx", {"batch": BATCH})
        if kind == "ReduceMean":
            assert asked.frontier(1, train=train)
        else:
            with pytest.raises(to.UserError, match="node 'l' adds samples up"):
                asked.frontier(1, train=train)


def test_a_loss_that_is_no_number(path: Path) -> None:
    train = to.Training("output:y", micro_batches="1..4")
    with pytest.raises(to.UserError, match="expected output 'y' to be one number"):
        to.load(path, {"batch": BATCH}).frontier(1, train=train)


def test_a_loss_over_classes(tmp_path: Path) -> None:
    """It takes a score of each sample, which sends nothing."""
    train = to.Training("softmax-cross-entropy:y,labels", micro_batches="auto")
    model = to.load(write_model(tmp_path / "m.onnx"), {"batch": BATCH})
    points = model.frontier(1, train=train, epsilon=0.01, resolution=0)
    assert {point.micro_batches for point in points} > {1}
