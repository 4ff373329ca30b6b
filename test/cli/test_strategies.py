"""A plan fed back in, as it was written and edited by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensoropt.runtime.check import check_plan

Edit = Callable[[dict[str, Any]], None]


@pytest.fixture
def plan(opt, mlp: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "plan"
    assert opt(mlp, "--mesh", "2", "--pick", "memory", "-o", folder).status == 0
    return folder / "plan.json"


def _edited(plan: Path, edit: Edit) -> Path:
    document = json.loads(plan.read_text())
    edit(document)
    changed = plan.parent.parent / "edited.json"
    changed.write_text(json.dumps(document))
    return changed


def _row(document: dict[str, Any], op: str) -> dict[str, Any]:
    row: dict[str, Any] = next(row for row in document["strategies"] if row["op"] == op)
    return row


def test_a_plan_fed_back_in_gives_the_same_graphs(opt, mlp: Path, plan: Path) -> None:
    again = plan.parent.parent / "again"
    assert opt(mlp, "--strategies", plan.parent, "-o", again).status == 0  # or its plan.json
    first, second = (json.loads(p.read_text()) for p in (plan, again / "plan.json"))
    assert second["files"] == first["files"]
    assert second["predicted"] == first["predicted"]
    assert second["search"] == {"name": "pinned", "seed": None, "epsilon": None}


def test_an_edited_strategy_is_compiled_and_runs(opt, mlp: Path, plan: Path) -> None:
    def replicate(document: dict[str, Any]) -> None:
        row = _row(document, "MatMul")
        row["operands"], row["results"] = [["R"], ["R"]], [["R"]]

    other = plan.parent.parent / "other"
    assert opt(mlp, "--strategies", _edited(plan, replicate), "-o", other).status == 0
    row = _row(json.loads((other / "plan.json").read_text()), "MatMul")
    assert (row["operands"], row["results"]) == ([["R"], ["R"]], [["R"]])
    assert check_plan(other, mlp).passed


def test_a_mesh_that_is_too_large(refused, mlp: Path, plan: Path) -> None:
    def enlarge(document: dict[str, Any]) -> None:
        document["mesh"]["shape"] = [1000]

    path = _edited(plan, enlarge)
    message = refused(mlp, "--strategies", path)
    assert message == f"--strategies {path}: expected at most 64 devices, got: mesh 1000 of 1000"


def _no_such_strategy(document: dict[str, Any]) -> None:
    _row(document, "MatMul")["results"] = [["P(max)"]]


def _renamed(document: dict[str, Any]) -> None:
    row = _row(document, "MatMul")
    row["node"] += "x"


def _bad_text(document: dict[str, Any]) -> None:
    _row(document, "MatMul")["results"] = [["Q"]]


def _no_mesh(document: dict[str, Any]) -> None:
    del document["mesh"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (_no_such_strategy, "its sharding rule does not offer"),
        (_renamed, "the plan has no node"),
        (_bad_text, "results/0/0"),
        (_no_mesh, "'mesh' is a required property"),
    ],
)
def test_an_edit_that_cannot_be_is_refused(
    refused, mlp: Path, plan: Path, edit: Edit, message: str
) -> None:
    assert message in refused(mlp, "--strategies", _edited(plan, edit))


def test_a_plan_that_is_no_plan_is_refused(refused, mlp: Path, tmp_path: Path) -> None:
    missing = tmp_path / "nope.json"
    assert "No such file" in refused(mlp, "--strategies", missing)
    missing.write_text("{")
    assert "expected JSON" in refused(mlp, "--strategies", missing)


@pytest.mark.parametrize("flag", [["--mesh", "2"], ["--devices", "2"], ["--pick", "knee"]])
def test_flags_that_a_plan_settles_are_refused(
    refused, mlp: Path, plan: Path, flag: list[str]
) -> None:
    expected = f"--strategies fixes the plan, expected no {flag[0]}"
    assert expected in refused(mlp, "--strategies", plan, *flag)
