"""What a plan's prediction is a sum of gives what the search predicted, and needs no model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tensoropt.compiler.calibrate.planned import planned_step
from tensoropt.compiler.calibrate.plans import Model, prepare_model
from tensoropt.compiler.cost.device import Device, load_device
from tensoropt.compiler.cost.measurements import KINDS, MeasuredCurve, Operator, Waiting
from tensoropt.compiler.search.frontier.search import SearchOptions, search_frontier
from tensoropt.compiler.training.spec import Optimizer, TrainingSpec, parse_loss
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.runtime.layout.mesh import Mesh

MODELS = Path(__file__).parent.parent / "models"
LOSS = "softmax-cross-entropy:linear,y"
MEASURED = {
    ("Gemm", "float32"): Operator(1e-6, 1e-11, 1e-10, frozenset(), 1000.0, 3e-10),
    ("MatMul", "float32"): Operator(2e-6, 2e-11),
    ("Add", "float32"): Operator(3e-6, fused=frozenset({("Gemm",), ("MatMul",)})),
}


def device(name: str) -> Device:
    plain = load_device("cpu")
    if name == "cpu":
        return plain
    return replace(
        plain,
        operators=MEASURED,
        step_overhead_s=1e-5,
        collectives={(kind, 2): MeasuredCurve(((2e-6, 1e-9), (0.0, 3e-9))) for kind in KINDS},
        waiting={2: Waiting(3e-5, 0.1), 4: Waiting(5e-5, 0.2)},
    )


def model(training: BuildTrainingStepPass | None = None) -> Model:
    return prepare_model(MODELS / "gpt2_tiny.onnx", {}, training)


@pytest.mark.parametrize("name", ["cpu", "measured"])
@pytest.mark.parametrize("mesh", [(1,), (2,), (2, 2)])
def test_it_adds_up_to_what_the_search_predicts(name: str, mesh: tuple[int, ...]) -> None:
    options = SearchOptions(epsilon=0.5)
    found = search_frontier(model().module, [Mesh(mesh)], device(name), options).points
    assert found
    for point in (found[0], found[-1]):
        step = planned_step(point)
        assert step.ranks == Mesh(mesh).size
        assert step.time_s(device(name)) == pytest.approx(point.time_s, rel=1e-9)


@pytest.mark.parametrize("name", ["cpu", "measured"])
@pytest.mark.parametrize("batches", [1, 3])
def test_so_does_a_step_of_training(name: str, batches: int) -> None:
    spec = TrainingSpec(parse_loss(LOSS), Optimizer("adamw"), micro_batches=batches)
    own = model(replace(BuildTrainingStepPass.from_spec(spec), recompute="none"))
    options = SearchOptions(epsilon=0.5)
    found = search_frontier(own.module, [Mesh((2,))], device(name), options).points
    step = planned_step(found[0])
    assert step.graphs == batches + 1
    assert step.time_s(device(name)) == pytest.approx(found[0].time_s, rel=1e-9)


def test_another_description_predicts_it_without_the_model() -> None:
    options = SearchOptions(epsilon=0.5)
    plain, other = device("cpu"), device("measured")
    [first, *_] = search_frontier(model().module, [Mesh((1,))], plain, options).points
    [same, *_] = search_frontier(model().module, [Mesh((1,))], other, options).points
    assert planned_step(first).time_s(other) == pytest.approx(same.time_s, rel=1e-9)
