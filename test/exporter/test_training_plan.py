"""What the schema says of a plan for training."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from handmade_training import LeastSquares

from tensoropt.compiler.exporter.plan.writer import check_document
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.optimizers import MOMENTS
from tensoropt.compiler.training.spec import PRECISIONS, RECOMPUTE, Loss, Optimizer
from tensoropt.runtime.plan.plan import Plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("training")
    return LeastSquares(place).plan(place / "plan")


def test_a_training_plan_is_read(folder: Path) -> None:
    found = Plan.load(folder)
    assert [tensor.name for tensor in found.inputs] == ["x", "t"]
    assert "weights/rank1.safetensors" in found.files


def changed(folder: Path, change: Callable[[Any], Any]) -> dict[str, Any]:
    document = json.loads((folder / "plan.json").read_text())
    change(document["training"])
    return document


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("loss_output"), "training: 'loss_output' is a required property"),
        (lambda t: t.update(colour=1), "training: Additional properties are not allowed"),
        (lambda t: t.update(recompute="auto"), "training.recompute: 'auto' is not one of"),
        (lambda t: t.update(clip_norm=0), "training.clip_norm: 0 is less than or equal to"),
        (lambda t: t["state"][0].update(kind="weight"), r"training\.state\[0\]\.kind: 'weight'"),
        (
            lambda t: t["state"][0].update(graph="both"),
            r"training\.state\[0\]\.graph: expected gradients: .*, got: 'both'",
        ),
        (lambda t: t["state"][0].update(read_by=[]), r"training\.state\[0\]\.read_by: \[\] should"),
        (lambda t: t["gradients"].clear(), r"training\.gradients: \[\] should be non-empty"),
        (lambda t: t["hyper"][0].update(role="rate"), r"training\.hyper\[0\]\.role: 'rate' is not"),
    ],
)
def test_what_the_schema_refuses(folder: Path, change: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_document(changed(folder, change), Path("plan.json"))


def test_the_schema_knows_every_choice() -> None:
    schema = json.loads(files("tensoropt.runtime.plan").joinpath("plan.schema.json").read_text())
    training = schema["properties"]["training"]["properties"]
    assert tuple(schema["$defs"]["recompute"]["enum"]) == RECOMPUTE
    assert tuple(training["precision"]["enum"]) == PRECISIONS
    kinds = set(training["state"]["items"]["properties"]["kind"]["enum"])
    moments = {moment for held in MOMENTS.values() for moment in held}
    assert kinds == {"parameter", "buffer", *moments}
    roles = training["hyper"]["items"]["properties"]["role"]["enum"]
    assert roles == ["learning_rate", "step", "seed", "loss_scale", "loss_weight"]


@pytest.mark.parametrize("name", ["loss", "optimizer"])
def test_the_schema_has_every_option(name: str) -> None:
    schema = json.loads(files("tensoropt.runtime.plan").joinpath("plan.schema.json").read_text())
    listed = schema["properties"]["training"]["properties"][name]["properties"]
    options = {field.name for field in fields({"loss": Loss, "optimizer": Optimizer}[name])}
    assert options == listed.keys() - {"classes"}
