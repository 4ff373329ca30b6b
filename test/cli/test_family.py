"""`--objective profile -o`: the plan of each number of devices, in one folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from tensoropt.compiler.planning import objectives
from tensoropt.runtime.family.family import Family

TRAIN = ("--train", "--loss", "mse:y,t", "--recompute", "none")
PROFILE = (*TRAIN, "--objective", "profile")


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def beside(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.parent.iterdir())


def test_a_family_is_written_and_said(opt, mlp: Path, tmp_path: Path) -> None:
    folder = tmp_path / "family"
    outcome = opt(mlp, *PROFILE, "--devices", "3", "-o", folder)
    assert (outcome.status, beside(folder)) == (0, ["family"])
    assert outcome.out == (
        opt(mlp, *PROFILE, "--devices", "3").out + f"family: {folder}: plans 1, 2, 3\n"
    )
    family = Family.read(folder)
    family.check()
    assert [plan.name for plan in family.plans] == ["1", "2", "3"]
    for plan in family.plans:
        document = json.loads((plan.path / "plan.json").read_text())
        assert document["predicted"]["time_s"] == pytest.approx(plan.time_s)
        assert document["predicted"]["process_bytes"] == plan.process_bytes


def test_a_family_has_the_points_of_the_table(opt, mlp: Path, tmp_path: Path) -> None:
    folder = tmp_path / "family"
    outcome = opt(mlp, *PROFILE, "--devices", "2", "-o", folder, "--format", "json")
    rows = json.loads(outcome.out)["profile"]
    found = [(plan.devices, plan.time_s) for plan in Family.read(folder).plans]
    assert found == [(row["devices"], pytest.approx(row["point"]["time_s"])) for row in rows]


def test_counts_that_do_not_fit_are_in_it(opt, mlp: Path, tmp_path: Path) -> None:
    folder, flags = tmp_path / "family", (*PROFILE, "--devices", "2", "--device", "v100")
    rows = json.loads(opt(mlp, *flags, "--format", "json").out)["profile"]
    limit = rows[0]["point"]["process_bytes"] // 2 + 1000
    outcome = opt(mlp, *flags, "--memory", str(limit), "-o", folder)
    assert "does not fit" in outcome.out
    assert outcome.out.endswith(f"family: {folder}: plans 2\n")
    family = Family.read(folder)
    assert (family.counts, family.limit_bytes) == ([2], limit)
    with pytest.raises(Exception, match=r"expected one of 2, got: 1 \(the leanest plan needs .*"):
        family.for_devices(1)


def test_nothing_is_written_where_nothing_fits(refused, mlp: Path, tmp_path: Path) -> None:
    folder = tmp_path / "family"
    message = refused(mlp, *PROFILE, "--devices", "2", "--memory", "100", "-o", folder, status=3)
    assert message.startswith("--memory: nothing fits up to 2 devices, where the leanest plan ")
    assert beside(folder) == []


def test_the_leanest_plans_too(opt, mlp: Path, tmp_path: Path) -> None:
    """Where the leanest plan is the fastest as well it comes once."""
    folder, flags = tmp_path / "family", ("--train", "--loss", "mse:y,t", "--objective", "profile")
    opt(mlp, *flags, "--devices", "2", "--with-leanest", "-o", folder)
    family = Family.read(folder)
    for plan in family.plans:
        points = json.loads((plan.path / "plan.json").read_text())["frontier"]
        marks = {name for point in points for name in point["marks"] if point["index"] == 0}
        assert ("leanest" in marks) == (
            f"{plan.devices}-lean" not in {p.name for p in family.plans}
        )


def test_micro_batches_take_their_time(opt, mlp: Path, tmp_path: Path) -> None:
    """The update is taken once, however many there are: that of SGD is short."""

    def time_s(optimizer: str, micro_batches: int) -> float:
        folder = tmp_path / f"{optimizer}{micro_batches}"
        flags = ("--optimizer", optimizer, "--micro-batches", str(micro_batches))
        opt(mlp, *PROFILE, *flags, "--devices", "1", "-o", folder)
        (plan,) = Family.read(folder).plans
        assert plan.samples_per_s == pytest.approx(8 * micro_batches / plan.time_s)
        return plan.time_s

    updates, batches = [], []
    for name in ("sgd", "adam"):
        two, three = time_s(name, 2), time_s(name, 3)
        batches.append(three - two)
        updates.append(two - 2 * (three - two))
    assert batches[0] == pytest.approx(batches[1])
    assert 0 < updates[0] < updates[1]


def test_stages_where_they_divide_the_devices(opt, refused, mlp: Path, tmp_path: Path) -> None:
    folder, flags = tmp_path / "family", (*PROFILE, "--micro-batches", "2", "--devices", "4")
    done = opt(mlp, *flags, "--stages", "2", "--schedule", "gpipe", "-o", folder)
    assert done.status == 0, done.err
    family = Family.read(folder)
    family.check()
    documents = [json.loads((plan.path / "plan.json").read_text()) for plan in family.plans]
    assert ["stages" in document for document in documents] == [False, True, True]
    assert "2 stages of 1" in done.out
    limit = str(family.plans[0].process_bytes - 1)
    assert "does not fit" in opt(mlp, *flags, "--stages", "auto", "--memory", limit).out
    assert "expected no --objective" in refused(
        mlp, *TRAIN, "--stages", "2", "--objective", "memory"
    )


def test_the_same_bytes_again_in_place_of_the_first(opt, mlp: Path, tmp_path: Path) -> None:
    folder = tmp_path / "family"
    flags = (*PROFILE, "--devices", "2", "-o", folder)
    assert opt(mlp, *flags).status == 0
    first = contents(folder)
    assert opt(mlp, *flags).status == 0
    assert (contents(folder), beside(folder)) == (first, ["family"])
    assert opt(mlp, *PROFILE, "--devices", "1", "-o", folder).status == 0
    assert not (folder / "2").exists()


@pytest.mark.parametrize("name", ["notes.txt", "2/notes.txt", "3/plan.json"])
def test_a_folder_with_something_else_is_refused(
    opt, refused, mlp: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "family"
    assert opt(mlp, *PROFILE, "--devices", "2", "-o", folder).status == 0
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("mine")
    before = contents(folder)
    message = refused(mlp, *PROFILE, "--devices", "2", "-o", folder)
    assert message.endswith(f"got: a folder with '{name}', which is not part of a family")
    assert contents(folder) == before


def test_a_plan_and_a_family_do_not_replace_each_other(
    opt, refused, mlp: Path, tmp_path: Path
) -> None:
    plan, family = tmp_path / "plan", tmp_path / "family"
    assert opt(mlp, *TRAIN, "--devices", "1", "-o", plan).status == 0
    assert opt(mlp, *PROFILE, "--devices", "1", "-o", family).status == 0
    assert "which is not part of a family" in refused(mlp, *PROFILE, "-o", plan)
    assert "which is not part of a plan" in refused(mlp, *TRAIN, "-o", family)


def test_ctrl_c_leaves_no_family(opt, mlp: Path, tmp_path: Path, monkeypatch) -> None:
    search = objectives.profile

    def interrupted(*args: Any) -> Any:
        yield next(search(*args))
        raise KeyboardInterrupt

    monkeypatch.setattr(objectives, "profile", interrupted)
    folder = tmp_path / "family"
    outcome = opt(mlp, *PROFILE, "--devices", "2", "-o", folder)
    assert (outcome.status, beside(folder)) == (130, [])
    said = f"interrupted: these are the counts up to 1 devices; not written: {folder}\n"
    assert outcome.err.startswith(said)
    assert len(outcome.out.splitlines()) == 4  # a row of one device, and how far off


def test_a_model_that_no_run_can_train(refused, tmp_path: Path) -> None:
    """Its inputs do not have samples first."""
    node = helper.make_node("Mul", ["x", "w"], ["h"]), helper.make_node("Mul", ["h", "s"], ["y"])
    sizes = {"x": [8, 4], "s": [4], "y": [8, 4]}
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in sizes.items()]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4], [1.0] * 4)
    graph = helper.make_graph(node, "scaled", ends[:2], ends[2:], [weight])
    opset = helper.make_opsetid("", 20)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), tmp_path / "m.onnx")
    folder = tmp_path / "family"
    expected = (
        "no run can train this step: input 's': expected samples first, 8 as in input 'x', got: 4"
    )
    for flags in (PROFILE, TRAIN):
        assert refused(tmp_path / "m.onnx", *flags, "--devices", "1", "-o", folder) == expected
        assert beside(folder) == ["m.onnx"]


def test_a_printed_step_becomes_a_family(opt, refused, mlp: Path, tmp_path: Path) -> None:
    """Text of a step is what the model is, with its weights."""
    step, first, second = tmp_path / "step.mlir", tmp_path / "first", tmp_path / "second"
    step.write_text(opt(mlp, *TRAIN, "--emit", "train").out)
    flags = ("--objective", "profile", "--devices", "2")
    assert opt(mlp, *TRAIN, *flags, "-o", first).status == 0
    assert opt(step, *flags, "--weights", mlp, "-o", second).status == 0
    assert contents(first) == contents(second)
    forward = tmp_path / "forward.mlir"
    forward.write_text(opt(mlp, "--emit", "prepare").out)
    message = refused(forward, *flags, "--weights", mlp, "-o", tmp_path / "third")
    assert message.endswith("a family is of plans for training, expected --train as well, or no -o")


def test_the_search_of_a_family_is_that_of_a_plan(opt, mlp: Path, tmp_path: Path) -> None:
    """There is one way through the compiler: a family's graphs are those of the plan alone."""
    plan, family = tmp_path / "plan", tmp_path / "family"
    opt(mlp, *TRAIN, "--devices", "2", "-o", plan)
    opt(mlp, *PROFILE, "--devices", "2", "-o", family)
    for name in ("rank0.onnx", "rank1.onnx", "rank0.update.onnx", "rank1.update.onnx"):
        assert (family / "2" / name).read_bytes() == (plan / name).read_bytes()
