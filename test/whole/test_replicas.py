"""Training steps on replicas of unlike devices: shares of the micro-batches, one step."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from unlike_devices import described

import tensoropt as to
from tensoropt.runtime.inspection.validation import validate
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError

STEPS, RATE, MICRO_BATCHES, SAMPLES = 5, 0.5, 4, 256
SIZES = (32, 256, 16)
LOSS = "softmax-cross-entropy:scores,labels"
Floats = NDArray[np.float64]


def perceptron(path: Path, weights: Sequence[Floats], batch: int) -> Path:
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"], "first"),
        helper.make_node("Tanh", ["h"], ["a"], "tanh"),
        helper.make_node("MatMul", ["a", "w1"], ["scores"], "second"),
    ]
    ends = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, size])]
        for name, size in (("x", SIZES[0]), ("scores", SIZES[-1]))
    )
    stored = [numpy_helper.from_array(w.astype(np.float32), f"w{n}") for n, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "perceptron", *ends, stored)
    imports = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return path


@dataclass
class Case:
    """A model for a micro-batch, its data, and the losses and weights of the whole batches."""

    folder: Path
    model: Path
    data: dict[str, NDArray[np.generic]]
    devices: tuple[str, str]
    losses: list[float]
    weights: list[Floats]

    def groups(self, size: int) -> str:
        return ",".join(f"{path}:{size}" for path in self.devices)

    def frontier(self, size: int, **asked: object) -> to.Frontier:
        train = to.Training(LOSS, "sgd", micro_batches=MICRO_BATCHES)
        asked = {"train": train, "stages": 1, "epsilon": 1.0, **asked}
        return to.load(self.model).frontier(self.groups(size), **asked)  # type: ignore[arg-type]


def trained_by_numpy(
    weights: Sequence[Floats], x: Floats, labels: NDArray[np.int64]
) -> tuple[list[float], list[Floats]]:
    """Return the loss of each step on ``SAMPLES`` samples, and the weights after all."""
    first, second = weights
    losses = []
    for step in range(STEPS):
        rows = slice(step * SAMPLES, (step + 1) * SAMPLES)
        own, wanted = x[rows], np.eye(SIZES[-1])[labels[rows]]
        a = np.tanh(own @ first)
        scores = a @ second
        shares = np.exp(scores - scores.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        losses.append(float(-np.log((shares * wanted).sum(1)).mean()))
        to_scores = (shares - wanted) / SAMPLES
        to_first = own.T @ ((to_scores @ second.T) * (1 - a**2))
        first, second = first - RATE * to_first, second - RATE * (a.T @ to_scores)
    return losses, [first, second]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder, rng = tmp_path_factory.mktemp("replicas"), np.random.default_rng(0)
    weights = [rng.standard_normal(own) / np.sqrt(own[0]) for own in zip(SIZES, SIZES[1:])]  # noqa: B905, RUF007
    count = STEPS * SAMPLES
    x, labels = rng.standard_normal((count, SIZES[0])), rng.integers(0, SIZES[-1], count)
    data = {"x": x.astype(np.float32), "labels": labels}
    model = perceptron(folder / "model.onnx", weights, SAMPLES // MICRO_BATCHES)
    devices = described(folder, "fast", 3.0), described(folder, "slow", 1.0)
    return Case(folder, model, data, devices, *trained_by_numpy(weights, x, labels))


def plan_of(case: Case, size: int) -> Path:
    """Return a plan of two replicas with ``size`` devices each, which all have whole weights."""
    plan = case.folder / f"plan{size}"
    if not plan.exists():
        frontier = case.frontier(size, pins=["w*=R"])
        found = next(point for point in frontier if len(point.replicas) == 2)
        assert found.mesh == (size,)
        found.compile(plan)
    return plan


@pytest.mark.parametrize("size", [1, 2])
def test_a_step_is_the_step_of_one_device(case: Case, size: int, tmp_path: Path) -> None:
    """Losses and weights are those of NumPy on the whole batch."""
    plan = plan_of(case, size)
    assert validate(plan) == []
    assert Plan.load(plan).document["replicas"] == {
        "micro_batches": [3, 1],
        "devices": ["fast", "slow"],
    }
    kinds = {node.op_type for node in onnx.load(plan / "rank0.update.onnx").graph.node}
    assert ("AllGather" in kinds) == (size > 1)  # of slices that the ranks of a replica add up
    exported = tmp_path / "trained.onnx"
    run = to.train(
        plan,
        case.data,
        STEPS,
        learning_rate=RATE,
        model=str(case.model),
        export=str(exported),
        threads=1,
    )
    assert np.abs(np.array(run.losses) - case.losses).max() < 1e-5
    found = {w.name: numpy_helper.to_array(w) for w in onnx.load(exported).graph.initializer}
    for number, wanted in enumerate(case.weights):
        assert np.abs(found[f"w{number}"] - wanted).max() < 1e-5


def test_training_goes_on_from_a_checkpoint(case: Case, tmp_path: Path) -> None:
    """Of a plan with replicas in a plan with others, and back."""
    first = {"learning_rate": RATE, "checkpoint": str(tmp_path / "first"), "threads": 1}
    begun = to.train(plan_of(case, 1), case.data, 2, **first)  # type: ignore[arg-type]
    rest = {"learning_rate": RATE, "resume": str(tmp_path / "first"), "threads": 1}
    run = to.train(plan_of(case, 2), case.data, STEPS - 2, **rest)  # type: ignore[arg-type]
    losses = [*begun.losses, *run.losses]
    assert np.abs(np.array(losses) - case.losses).max() < 1e-5


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([2, 1], "replicas: expected the 4 micro-batches of a step, got: 3"),
        ([2, 1, 1], "ranks: expected the mesh's 3, got: 2"),
    ],
)
def test_a_plan_with_other_parts_is_refused(
    case: Case, tmp_path: Path, parts: list[int], text: str
) -> None:
    shutil.copytree(plan_of(case, 1), tmp_path / "plan")
    path = tmp_path / "plan" / "plan.json"
    document = json.loads(path.read_text())
    document["replicas"]["micro_batches"] = parts
    path.write_text(json.dumps(document))
    assert any(text in str(problem) for problem in validate(tmp_path / "plan"))


BATCHES = 4


@pytest.fixture(scope="module")
def served(case: Case) -> Path:
    """A plan for inference of four batches, on two replicas with two devices each."""
    frontier = to.load(case.model).frontier(case.groups(2), batches=BATCHES, epsilon=1.0)
    point = next(own for own in frontier if len(own.replicas) == 2)
    point.compile(case.folder / "served")
    return case.folder / "served"


def test_a_run_is_that_of_one_device_on_every_batch(case: Case, served: Path) -> None:
    """Outputs are those of ONNX Runtime, for each batch of the model in turn."""
    assert validate(served) == []
    entry = Plan.load(served).document["replicas"]
    assert entry == {"micro_batches": [3, 1], "devices": ["fast", "slow"]}
    session, size = onnxruntime.InferenceSession(case.model), SAMPLES // MICRO_BATCHES
    x = case.data["x"][: BATCHES * size]
    rows = (slice(n * size, (n + 1) * size) for n in range(BATCHES))
    wanted = np.concatenate([session.run(None, {"x": x[own]})[0] for own in rows])
    with to.Session(served, threads=1) as ranks:
        (end,), (out,) = ranks.inputs, ranks.outputs
        assert (end.shape, out.shape) == ((SAMPLES, SIZES[0]), (SAMPLES, SIZES[-1]))
        for sign in (1, -1, 1):
            found = ranks.run({"x": sign * x})["scores"]
            assert np.abs(found - sign * wanted).max() < 1e-5  # tanh without a bias is odd
        assert all(time_s > 0 for time_s in ranks.step_times_s(2))
        with pytest.raises(UserError, match="'x'"):
            ranks.run({"x": x[:size]})


def test_a_check_runs_every_replica(case: Case, served: Path) -> None:
    result = to.check(served, model=case.model, threads=1)
    assert result.passed
