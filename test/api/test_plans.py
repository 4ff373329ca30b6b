"""From points to plans: several of one frontier, and what a plan says of itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tensoropt as to
from tensoropt.runtime.support.job import CheckArguments, Job
from tensoropt.runtime.support.options import Options, option_names
from tensoropt.runtime.support.rank_options import SessionArguments, SessionOptions
from tensoropt.runtime.training.job import TrainArguments, TrainJob


def test_a_plan_of_each_point(frontier: to.Frontier, tmp_path: Path) -> None:
    plans = [point.compile(tmp_path / str(point.index)) for point in (*frontier, frontier[0])]
    for point, plan in zip(frontier, plans, strict=False):
        assert plan.predicted.time_s == pytest.approx(point.time_s)
        assert plan.predicted.static_bytes == point.static_bytes
    assert plans[0].layouts != plans[-2].layouts
    assert plans[0].layouts == plans[-1].layouts == to.Plan(tmp_path / "0").layouts


def test_what_a_plan_is(plan: to.Plan, mlp: Path) -> None:
    assert (plan.model, plan.ranks, plan.mesh, plan.trains) == ("mlp.onnx", 2, (2,), False)
    assert [tensor.name for tensor in plan.inputs] == ["x"]
    assert set(plan.layouts) == {"x", "w1", "w2", "y"}
    assert repr(plan).startswith(f"<Plan {plan.folder}: mlp.onnx on 2 ranks, predicted ")
    shown = plan._repr_html_()
    assert "inputs and outputs" in shown
    assert "<script" not in shown
    found = plan.check(mlp, inputs={"x": np.ones((8, 128), np.float32)}, runs=1)
    assert (found.passed, len(found.step_times_s)) == (True, 1)


def test_a_folder_that_is_no_plan(tmp_path: Path, frontier: to.Frontier) -> None:
    with pytest.raises(to.UserError, match=r"not a plan directory, it has no plan\.json"):
        to.Plan(tmp_path)
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(to.UserError, match=r"mine\.txt"):
        frontier[0].compile(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_check_that_fails(plan: to.Plan, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(b"")
    with pytest.raises(to.UserError, match="not the model that"):
        plan.check(other)


@pytest.mark.parametrize(
    ("path", "dims", "message"),
    [
        ("none.onnx", {}, "none.onnx: "),
        ("mlp.onnx", {"size": 2}, "no symbolic dimension 'size', expected one of: batch"),
        ("mlp.onnx", {"batch": "two"}, "--dim batch: expected a whole number from 0 to"),
        ("mlp.onnx", {"batch": -1}, "--dim batch: expected a whole number from 0 to"),
    ],
)
def test_what_cannot_be_loaded(mlp: Path, path: str, dims: dict[str, int], message: str) -> None:
    with pytest.raises((to.UserError, OSError), match=re.escape(message)):
        to.load(mlp.with_name(path), dims)


def test_sizes_that_are_open_are_noted(mlp: Path) -> None:
    notes = to.load(mlp).frontier(devices=2).notes
    assert any(note.startswith("note: without a size 'batch' counts as 1") for note in notes)


def test_inputs_and_outputs(mlp: Path, model: to.Model) -> None:
    (fed,), (given,) = model.inputs, model.outputs
    assert (fed.name, fed.dtype, fed.shape) == ("x", "float32", (8, 128))
    assert (given.name, given.shape) == ("y", (8, 128))
    assert to.load(mlp).inputs[0].shape == ("batch", 128)


def test_plan_of_a_plan(plan: to.Plan, model: to.Model, tmp_path: Path) -> None:
    same = model.frontier(strategies=plan.folder)
    assert len(same) == 1
    assert same[0].compile(tmp_path / "same").layouts == plan.layouts


def test_what_it_explains(frontier: to.Frontier, plan: to.Plan, tmp_path: Path) -> None:
    assert plan.explain().text() == frontier.leanest.explain().text()
    opened = to.Plan(plan.folder).explain()
    assert str(opened).startswith(f"{plan.folder}: mlp.onnx on 2 x cpu, mesh 2")
    other = frontier.fastest.compile(tmp_path / "fastest")
    assert not plan.diff(other).data.is_empty
    assert to.diff(plan, plan.folder).data.is_empty


def test_a_session(plan: to.Plan) -> None:
    with plan.session() as session:
        found = session.run({"x": np.ones((8, 128), np.float32)})
    assert found["y"].shape == (8, 128)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": -1}, "runs: expected a whole number from 0, got: -1"),
        ({"rtol": "much"}, "rtol: expected a number from 0, got: 'much'"),
        ({"provider": "gpu"}, "provider: expected 'cpu' or 'cuda', got: 'gpu'"),
        ({"int_range": (5, 5)}, "int_range: expected LO:HI, whole numbers with LO below HI, got: "),
        ({"share_gpus": True}, "share_gpus: expected provider cuda"),
        ({"inputs": {"y": [1.0]}}, "inputs: array 'y' is not an input of the plan"),
        ({"dims": {"n": -1}}, "dims: expected a dictionary of sizes from 0 to"),
        ({"dims": {"n": 1}}, "dims n: no input has such a dimension"),
    ],
)
def test_what_a_check_refuses(plan: to.Plan, mlp: Path, options, message: str) -> None:
    with pytest.raises(to.UserError, match=re.escape(message)):
        plan.check(mlp, **options)


@pytest.mark.parametrize(
    ("options", "arguments", "function", "own"),
    [
        (SessionOptions, SessionArguments, to.Session, {"plan"}),
        (Job, CheckArguments, to.check, {"plan", "model"}),
        (TrainJob, TrainArguments, to.train, {"plan", "data", "steps", "devices"}),
    ],
)
def test_every_option_is_a_keyword_argument(
    options: type[Options], arguments: type, function: Callable[..., object], own: set[str]
) -> None:
    shown = inspect.signature(function).parameters
    assert {*arguments.__annotations__} == {*option_names(options)} - own
    assert {*shown} == own | {*arguments.__annotations__}
    assert shown["threads"].default is None
