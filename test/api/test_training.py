"""Training from Python: the step, its plan, and steps of it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tensoropt as to

TRAIN = to.Training("mse:y,labels", optimizer="sgd", recompute="none")


@pytest.fixture(scope="module")
def planned(model: to.Model, tmp_path_factory: pytest.TempPathFactory) -> to.Plan:
    frontier = model.frontier(devices=2, epsilon=0.05, train=TRAIN)
    return frontier.leanest.compile(tmp_path_factory.mktemp("plans") / "train")


def data(rows: int = 8, width: int = 128) -> dict[str, np.ndarray]:
    drawn = np.random.default_rng(0).standard_normal((rows, width), dtype=np.float32)
    return {"x": drawn, "labels": drawn}


def test_steps(planned: to.Plan, tmp_path: Path) -> None:
    assert planned.trains
    first = to.train(planned, data(), 3, learning_rate=0.5, checkpoint=tmp_path)
    assert len(first.losses) == len(first.step_times_s) == 3
    assert first.losses[-1] < first.losses[0]
    assert first.learning_rates == (0.5, 0.5, 0.5)
    again = to.train(planned.folder, data(), 1, checkpoint=tmp_path, resume=first.checkpoint)
    assert (again.step, len(again.losses)) == (4, 1)
    assert again.losses[0] < first.losses[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps: expected a whole number from 1, got: 0"),
        ({"steps": "two"}, "steps: expected a whole number from 0, got: 'two'"),
        ({"learning_rate": -1}, "learning_rate: expected a number from 0, got: -1"),
        ({"schedule": "cosin"}, "schedule: expected 'constant', 'cosine' or 'linear'"),
        ({"schedule": "cosin"}, "did you mean 'cosine'?"),
        ({"min_learning_rate": 1e-4}, "min_learning_rate: expected schedule cosine or linear too"),
        (
            {"min_learning_rate": 0.1, "schedule": "linear"},
            "min_learning_rate: expected at most learning_rate 0.001, got: 0.1",
        ),
        ({"timeout_s": 0}, "timeout_s: expected seconds above 0, got: 0"),
        ({"threads": 0}, "threads: expected a whole number from 1 to 1024, got: 0"),
        ({"checkpoint_every": 1}, "checkpoint_every: expected checkpoint too"),
        ({"export": "m.onnx"}, "export: expected model too"),
        ({"resume": "none"}, "none"),
        ({"data": {"y": [1.0]}}, "data: input 'x' is missing"),
        ({"data": "none.npz"}, "none.npz"),
    ],
)
def test_what_is_refused(planned: to.Plan, options: dict[str, object], message: str) -> None:
    given = {"data": data(), "steps": 1, **options}
    with pytest.raises(to.UserError, match=re.escape(message)):
        to.train(planned.folder, **given)  # type: ignore[arg-type]


def test_a_plan_for_inference(plan: to.Plan) -> None:
    with pytest.raises(to.UserError, match=re.escape(str(plan.folder))):
        to.train(plan.folder, data(), 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "mes:y,t"}, "--loss: unknown kind 'mes', valid choices are output"),
        ({"optimizer": "adamm"}, "did you mean 'adam'?"),
        ({"optimizer": "sgd", "betas": (0.9, 0.9)}, "--betas belongs to --optimizer adam or adamw"),
        ({"betas": (0.9, 1)}, "--betas: expected at least 0 and below 1, got: 1"),
        ({"clip_norm": "1"}, "--clip-norm: expected a number, got: '1'"),
        ({"clip_norm": 0}, "--clip-norm: expected above 0, got: 0"),
        ({"micro_batches": 0}, "--micro-batches: expected a whole number from 1 to"),
        ({"recompute": "all"}, "--recompute: unknown choice 'all'"),
    ],
)
def test_what_a_step_cannot_be(options: dict[str, object], message: str) -> None:
    with pytest.raises(to.UserError, match=re.escape(message)):
        to.Training(**{"loss": "mse:y,labels", **options})  # type: ignore[arg-type]


def test_whole_numbers_are_numbers(model: to.Model) -> None:
    given = to.Training("mse:y,labels", "momentum", 0, weight_decay=0, clip_norm=1)
    assert len(model.frontier(devices=1, train=given))


def test_a_step_is_a_training(model: to.Model) -> None:
    with pytest.raises(to.UserError, match="train: expected a Training, got: 'mse:y,labels'"):
        model.frontier(devices=1, train="mse:y,labels")  # type: ignore[arg-type]


def test_frozen_weights(model: to.Model) -> None:
    frozen = to.Training("mse:y,labels", optimizer="sgd", recompute="none", freeze="w1")
    notes = model.frontier(devices=1, train=frozen).notes
    assert any("not trained: 1 tensor of 16,384 elements, 'w1'" in note for note in notes)
    with pytest.raises(to.UserError, match="--freeze: 'w9' matches no weight"):
        model.frontier(devices=1, train=to.Training("mse:y,labels", freeze=["w9"]))


def test_a_family(model: to.Model, tmp_path: Path) -> None:
    found = model.family(tmp_path / "family", TRAIN, devices=2)
    assert [frontier.devices for frontier in found] == [1, 2]
    assert to.Plan(tmp_path / "family/2").ranks == 2
    with pytest.raises(
        to.UserError, match=r"is a family of plans, expected one of them: .*family/1,"
    ):
        to.Plan(tmp_path / "family")
    with pytest.raises(to.UserError, match=r"family: no plan .* expected one of 1, 2, got: 3"):
        to.train(tmp_path / "family", data(), 1, devices=3)
    with pytest.raises(to.UserError, match="is a family of plans for 1, 2 devices, expected dev"):
        to.train(tmp_path / "family", data(), 1)
    with pytest.raises(to.UserError, match="is one plan, expected no devices=2"):
        to.train(tmp_path / "family/2", data(), 1, devices=2)
    options = {"learning_rate": 1e-2, "checkpoint": tmp_path / "saved"}
    first = to.train(tmp_path / "family", data(), 2, devices=2, **options)
    assert first.result.ranks == 2
    again = to.train(tmp_path / "family", data(), 2, devices=1, resume=first.checkpoint)
    alone = to.train(
        tmp_path / "family/1", data(), 3, resume=tmp_path / "family/initial.safetensors"
    )
    assert again.step == 4
    assert first.losses[0] == pytest.approx(alone.losses[0])


def test_a_profile(model: to.Model) -> None:
    found = model.profile(2)
    assert len(found) == 2
    assert found[1].fastest.time_s > 0
    assert str(found).splitlines()[0] == "mlp.onnx on cpu: fastest, per device"
    assert "<table>" in found._repr_html_()
    nothing = model.profile(2, memory="1B")
    assert list(nothing.why_not) == [1, 2]
    with pytest.raises(to.UserError, match="empty"):
        _ = nothing[0].fastest
