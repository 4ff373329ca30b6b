"""Pins and the forms that others read, from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import tensoropt as to


def test_plans_around_a_pin_in_the_forms_of_others(
    model: to.Model, mlp: Path, tmp_path: Path
) -> None:
    pins = ["node:first=column@x", "w2=S(0)@x"]
    frontier = model.frontier(mesh=[2], pins=pins, forbid=["node:*=partial"], epsilon=0)
    point, annotated = frontier.fastest, tmp_path / "annotated.onnx"
    assert point.dtensor()["parameters"] == {
        "w1": [["Shard", {"dim": 1}]],
        "w2": [["Shard", {"dim": 0}]],
    }
    assert point.annotate(annotated) == (3, 3)
    assert any(note.startswith("pins cost: ") for note in frontier.notes)
    again = to.load(mlp, dims={"batch": 8}).frontier(pins=[annotated], epsilon=0)
    first, second = (
        p.compile(tmp_path / name).layouts
        for p, name in ((point, "first"), (again.fastest, "again"))
    )
    assert first["w1"] == second["w1"] == ("S(1)",)
    assert first == second


def test_a_training_step_has_no_annotations(model: to.Model, tmp_path: Path) -> None:
    train = to.Training(loss="mse:y,t", optimizer="sgd", recompute="none")
    point = model.frontier(mesh=[2], train=train, epsilon=1).fastest
    for refused in (point.dtensor, lambda: point.annotate(tmp_path / "a.onnx")):
        with pytest.raises(to.UserError, match="is about a model, expected no training step"):
            refused()


def test_pins_that_contradict_each_other(model: to.Model) -> None:
    message = r"^pin 'w1=S\(0\)' and pin 'w1=S\(1\)' contradict each other"
    with pytest.raises(to.UserError, match=message):
        model.frontier(mesh=[2], pins=["w1=S(0)", "w1=S(1)"])
