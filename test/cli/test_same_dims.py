"""Sizes of dimensions: the flags of tensoropt-opt are valid for all other commands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tensoropt.elastic.cli.job import main as job
from tensoropt.runtime.cli.run import main as run
from tensoropt.runtime.inference.work import check_job
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.job import Job
from tensoropt.runtime.support.rank_options import SessionOptions
from tensoropt.runtime.training.job import TrainJob
from tensoropt.runtime.training.prepare import check_training
from tensoropt.serving.opening import check_sizes, restrict_dims
from test.cli.conftest import Opt


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A matrix product with a batch and a number of tokens that have names."""
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *rest])
        for name, rest in (("x", ["tokens", 16]), ("y", ["tokens", 16]))
    )
    weight = helper.make_tensor("w", TensorProto.FLOAT, [16, 16], [i % 7 / 8 for i in range(256)])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y],
        [weight])  # fmt: skip
    path = tmp_path_factory.mktemp("models") / "m.onnx"
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def _plan(opt: Opt, model: Path, folder: Path, *dims: str, more: tuple[str, ...] = ()) -> Path:
    flags = [text for dim in dims for text in ("--dim", dim)]
    assert opt(model, "--mesh", "2", *flags, *more, "-o", folder).status == 0
    return folder


def _checked(plan: Path, model: Path, **dims: object) -> None:
    check_job(Job((str(plan),), model=str(model), dims=dims))  # type: ignore[arg-type]


def test_a_plan_remembers_its_sizes(opt: Opt, model: Path, tmp_path: Path) -> None:
    plan = _plan(opt, model, tmp_path / "plan", "batch=8", "tokens=16..64:16")
    assert json.loads((plan / "plan.json").read_text())["dims"] == {
        "batch": {"first": 8, "last": 8, "step": 1},
        "tokens": {"first": 16, "last": 64, "step": 16},
    }
    _checked(plan, model)
    _checked(plan, model, batch=8, tokens=range(16, 65, 16))
    _checked(plan, model, tokens=48)
    with pytest.raises(UserError, match=r"^dims batch: expected 8 as the plan has it, got: 4$"):
        _checked(plan, model, batch=4)
    with pytest.raises(UserError, match=r"^dims tokens: expected from 16 to 64 in steps of 16 as"):
        _checked(plan, model, tokens=(1, 64))
    with pytest.raises(UserError, match="'tokens' from 16 to 64 in steps of 16 as the plan has"):
        _checked(plan, model, tokens=17)


def test_sizes_pass_through_text(opt: Opt, model: Path, tmp_path: Path) -> None:
    text, plan = tmp_path / "m.mlir", tmp_path / "plan"
    emit = "--emit", "search", "--mesh", "2", "--dim", "batch=8", "-o"
    assert opt(model, *emit, text).status == 0
    assert opt(text, "--weights", model, "-o", plan).status == 0
    assert Plan.load(plan).dims == {"batch": range(8, 9)}


def test_a_server_takes_the_sizes_of_its_plans(opt: Opt, model: Path, tmp_path: Path) -> None:
    fixed = Plan.load(_plan(opt, model, tmp_path / "fixed", "batch=8"))
    free = Plan.load(_plan(opt, model, tmp_path / "free"))
    check_sizes([fixed, free], {"batch": 8, "tokens": 4})
    options = SessionOptions(dims={"batch": 8, "tokens": 4})
    assert restrict_dims(fixed, options).dims == {"tokens": 4}
    assert restrict_dims(free, options).dims == {"batch": 8, "tokens": 4}
    with pytest.raises(UserError, match="dims batch: expected 8 as the plan has it, got: 2"):
        check_sizes([fixed, free], {"batch": 2})
    with pytest.raises(UserError, match="dims toks: no input has such a dimension, did you mean"):
        check_sizes([fixed, free], {"toks": 2})


def test_training_takes_the_sizes_of_its_plan(opt: Opt, model: Path, tmp_path: Path) -> None:
    step = "--train", "--loss", "mse:y,labels", "--micro-batches", "1"
    plan = _plan(opt, model, tmp_path / "plan", "batch=8", "tokens=1", more=step)
    options = {"data": None, "steps": 0}
    check_training(TrainJob(str(plan), dims={"batch": 8}, **options))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="dims tokens: expected 1 as the plan has it, got: 2"):
        check_training(TrainJob(str(plan), dims={"tokens": 2}, **options))  # type: ignore[arg-type]


def test_a_family_has_the_sizes_of_its_plans(
    opt: Opt, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    family = tmp_path / "family"
    flags = "--train", "--loss", "mse:y,labels", "--objective", "profile", "--devices", "2"
    assert opt(model, *flags, "--dim", "batch=8", "--dim", "tokens=1", "-o", family).status == 0
    command = "run", str(family), "--devices", "1", "--data", "none.npz", "--steps", "1", "--dim"
    assert job([*command, "batch=4"]) == 1
    assert capsys.readouterr().err == (
        "error: --dim batch: expected 8 as the plan has it, got: 4\n"
    )
    assert job([*command, "batch=8"]) == 1
    assert re.search("none.npz", capsys.readouterr().err)


def test_a_check_takes_the_flags_of_the_plan(
    opt: Opt, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = _plan(opt, model, tmp_path / "plan", "batch=8", "tokens=2..4")
    check = str(plan), "--check", str(model), "--dim", "batch=8"
    assert run([*check, "--dim", "tokens=2..4"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "sizes of the plan: tokens=3 (--dim tokens=N sets others)", "PASSED",
    ]  # fmt: skip
    assert run([*check, "--dim", "tokens=4"]) == 0
    assert "sizes of the plan" not in capsys.readouterr().out


def test_a_plan_without_sizes_is_checked_at_one(
    opt: Opt, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = _plan(opt, model, tmp_path / "plan")
    assert run([str(plan), "--check", str(model)]) == 0
    assert "sizes of the plan: batch=1, tokens=1 (--dim batch=N --dim tokens=N sets others)" in (
        capsys.readouterr().out
    )
