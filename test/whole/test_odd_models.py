"""Valid models of every unusual kind: all that is chosen for them runs and agrees."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from odd_models import MODELS

from tensoropt.compiler.cli.opt import main
from tensoropt.runtime.inference.jobs import check_plans

DIMS = {"symbolic_dimensions": {"batch size": 6, "z:0": 2}}
PLANS = [
    ["--devices", "2"],
    *(["--devices", "2", "--search", "random", "--seed", str(seed)] for seed in range(5)),
]


@pytest.mark.parametrize("name", MODELS)
def test_odd_model(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(MODELS[name](), path)
    plans = [tmp_path / f"plan{number}" for number in range(len(PLANS))]
    for flags, plan in zip(PLANS, plans, strict=True):
        assert main([str(path), *flags, "-o", str(plan)]) == 0
    results = check_plans(plans, path, dims=DIMS.get(name, {}), threads=1, timeout_s=120)
    assert [result.error for result in results] == [None] * len(plans)
    assert all(result.passed for result in results)


@pytest.mark.parametrize("name", ["an_input_returned", "a_loop", "the_oldest_opset"])
def test_odd_model_on_more_ranks(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(MODELS[name](), path)
    plans = []
    for seed in range(4):
        plans.append(tmp_path / f"plan{seed}")
        flags = ["--mesh", "2x2", "--search", "random", "--seed", str(seed)]
        assert main([str(path), *flags, "-o", str(plans[-1])]) == 0
    assert all(result.passed for result in check_plans(plans, path, threads=1, timeout_s=120))


@pytest.mark.parametrize(
    "mesh", ["1", pytest.param("3", marks=pytest.mark.quick), "1x2", "2x3", "2x2x2"]
)
def test_every_kind_of_mesh(mesh: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(MODELS["double_precision"](), path)
    plan = tmp_path / "plan"
    assert main([str(path), "--mesh", mesh, "-o", str(plan)]) == 0
    [result] = check_plans([plan], path, threads=1, timeout_s=120)
    assert result.passed
