"""Training through the command line: steps printed, searched, compared, written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

V100 = ("--device", "v100")  # whose processes nobody measured
TRAIN = ("--train", "--loss", "mse:y,t", "--optimizer", "sgd")


def points(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text)["points"]
    return found


def test_the_step_is_printed(opt, mlp: Path) -> None:
    outcome = opt(mlp, *TRAIN, "--emit", "train")
    assert outcome.status == 0
    assert 'topt.state = "parameter"' in outcome.out
    assert 'topt.phase = "update"' in outcome.out
    assert 'topt.phase = "recompute"' not in outcome.out
    assert outcome.err.startswith("note: trained: ")


@pytest.mark.parametrize("phase", ["search", "reshard", "partition"])
def test_a_printed_step_goes_on(opt, deep: Path, tmp_path: Path, phase: str) -> None:
    """From the text of a phase follows what follows from the model."""
    flags = ("--devices", "2", "--pick", "leanest")
    step = tmp_path / "step.mlir"
    step.write_text(opt(deep, *TRAIN, "--recompute", "none", "--emit", "train").out)
    whole = opt(deep, *TRAIN, "--recompute", "none", "--emit", phase, *flags)
    assert whole.status == 0
    assert opt(step, "--emit", phase, *flags).out == whole.out


def test_a_printed_step_has_a_frontier(opt, deep: Path, tmp_path: Path) -> None:
    step = tmp_path / "step.mlir"
    step.write_text(opt(deep, *TRAIN, "--recompute", "none", "--emit", "train").out)
    searched = points(opt(step, "--devices", "2", "--pareto", "--format", "json").out)
    whole = opt(deep, *TRAIN, "--recompute", "none", "--devices", "2", "--pareto", "--format=json")
    expected = points(whole.out)
    assert [point["recompute"] for point in expected] == ["none"] * len(expected)
    assert searched == expected


def test_a_printed_step_is_not_trained_again(opt, refused, deep: Path, tmp_path: Path) -> None:
    step = tmp_path / "step.mlir"
    step.write_text(opt(deep, *TRAIN, "--emit", "train").out)
    assert "has passed the train already" in refused(step, *TRAIN, "--pareto")
    message = refused(step, *TRAIN, "--emit", "search")
    assert message.endswith("has passed the train already, expected no --train")


def test_all_ways_to_recompute_are_searched(opt, deep: Path) -> None:
    united = points(opt(deep, *TRAIN, "--devices", "2", "--pareto", "--format", "json").out)
    apart = [
        point
        for way in ("none", "light", "half", "blocks")
        for point in points(
            opt(deep, *TRAIN, "--devices=2", "--pareto", "--format=json", "--recompute", way).out
        )
    ]
    assert {point["recompute"] for point in united} <= {point["recompute"] for point in apart}
    for point in apart:
        assert any(
            other["time_s"] <= point["time_s"] and other["process_bytes"] <= point["process_bytes"]
            for other in united
        )
    assert [point["index"] for point in united] == list(range(len(united)))


def test_searches_are_compared_on_a_step(opt, deep: Path) -> None:
    outcome = opt(deep, *TRAIN, "--devices", "2", "--compare", "ft,data-parallel", "--format=json")
    assert [row["method"] for row in json.loads(outcome.out)["methods"]] == ["ft", "data-parallel"]


def test_a_profile_of_training(opt, deep: Path) -> None:
    outcome = opt(deep, *TRAIN, "--objective", "profile", "--devices", "2", "--format", "json")
    rows = json.loads(outcome.out)["profile"]
    assert [row["devices"] for row in rows] == [1, 2]
    assert all("recompute" in row["point"] for row in rows)


def test_a_search_that_finds_nothing_within_the_memory_ends_no_profile(opt, deep: Path) -> None:
    """The sizes of the tensors alone do not rule it out; a search may do so by its own error."""
    flags = (*TRAIN, "--recompute", "none", "--objective", "profile", "--format", "json", *V100)
    (row,) = json.loads(opt(deep, *flags, "--devices", "1").out)["profile"]
    limit = str(row["point"]["process_bytes"] - 1)
    outcome = opt(deep, *flags, "--devices", "2", "--memory", limit, "--search", "ilp")
    assert outcome.status == 0
    one, two = json.loads(outcome.out)["profile"]
    assert one["point"] is None
    assert two["point"]["mesh"] == [2]


def test_the_fewest_devices_that_train(opt, deep: Path) -> None:
    flags = (*TRAIN, *V100, "--objective", "devices", "--format", "json")
    lean = points(opt(deep, *TRAIN, *V100, "--devices", "2", "--pareto", "--format", "json").out)[
        -1
    ]
    outcome = opt(deep, *flags, "--memory", str(lean["process_bytes"]), "--devices", "4")
    assert points(outcome.out)[0]["mesh"] == [2]


def test_a_plan_of_training_says_how(opt, mlp: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    flags = ("--clip-norm", "2", "--micro-batches", "3", "--freeze", "w1")
    assert opt(mlp, *TRAIN, *flags, "--devices", "2", "-o", folder).status == 0
    document = json.loads((folder / "plan.json").read_text())
    training = document["training"]
    assert training["loss"] == {"kind": "mse", "output": "y", "labels": "t", "classes": None}
    assert (training["clip_norm"], training["micro_batches"]) == (2.0, 3)
    assert training["optimizer"]["name"] == "sgd"
    assert [row["name"] for row in training["state"]] == ["w2"]
    assert [row["name"] for row in document["parameters"]] == ["w1"]
    assert [row["name"] for row in document["inputs"]] == ["x", "t"]
    (gradient,) = training["gradients"]
    assert (gradient["name"], gradient["accumulator"]) == ("w2.grad", "w2.gradient")


def test_a_plan_fed_back_in_gives_the_same_graphs(opt, deep: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    flags = (*TRAIN, "--micro-batches", "2")
    assert opt(deep, *flags, "--devices", "2", "--pick", "leanest", "-o", first).status == 0
    assert opt(deep, *flags, "--strategies", first, "-o", second).status == 0
    found = [json.loads((folder / "plan.json").read_text()) for folder in (first, second)]
    assert found[0]["files"] == found[1]["files"]
    assert found[0]["training"] == found[1]["training"]


def test_strategies_of_the_other_kind(opt, refused, deep: Path, tmp_path: Path) -> None:
    infers, trains = tmp_path / "infers", tmp_path / "trains"
    assert opt(deep, "--devices", "2", "-o", infers).status == 0
    assert opt(deep, *TRAIN, "--devices", "2", "-o", trains).status == 0
    assert "is not for training, expected no --train" in refused(
        deep, *TRAIN, "--strategies", infers
    )
    assert "is for training, expected --train as well" in refused(deep, "--strategies", trains)
    message = refused(deep, *TRAIN, "--recompute", "half", "--strategies", trains)
    assert message == "--recompute: expected none, as --strategies has it, got: half"


@pytest.mark.parametrize(
    ("flags", "got"),
    [
        (["--optimizer", "adam"], "w1.mean"),
        (["--freeze", "w1"], "no w1"),
        (["--micro-batches", "1"], "no w1.gradient"),
    ],
)
def test_strategies_of_another_step(
    opt, refused, deep: Path, tmp_path: Path, flags: list[str], got: str
) -> None:
    folder, many = tmp_path / "plan", ("--micro-batches", "2")
    assert opt(deep, *TRAIN, *many, "--devices", "2", "-o", folder).status == 0
    message = refused(deep, *TRAIN, *many, *flags, "--strategies", folder)
    assert message == (
        "--strategies: the plan is of another step, expected its --optimizer sgd, "
        f"--micro-batches 2 and --freeze, got: {got}"
    )


def test_a_plan_for_training_is_replaced_and_nothing_else(
    opt, refused, deep: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "plan"
    assert opt(deep, *TRAIN, "--devices", "2", "-o", folder).status == 0
    assert opt(deep, "--devices", "2", "-o", folder).status == 0
    assert not list(folder.rglob("*.safetensors"))
    assert opt(deep, *TRAIN, "--devices", "2", "-o", folder).status == 0
    (folder / "weights" / "mine.safetensors").write_bytes(b"")
    assert "weights/mine.safetensors" in refused(deep, *TRAIN, "-o", folder)
