"""Models with weights in files that are not on disk: all reports work, a plan is refused early."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tensoropt as to
from tensoropt.compiler.api.model import Model

NOTE = "note: m.onnx was read without m.bin, missing on disk"
TIES = f"{NOTE}: copies of tied weights are not recognised, and count twice"
TRAIN = ("--train", "--loss", "mse:y,t", "--recompute", "none")


def save(folder: Path, *, is_tied: bool = True) -> Path:
    """Save an embedding and the scores of all words; return the model in ``folder``."""
    folder.mkdir()
    table = np.random.default_rng(0).standard_normal((64, 16)).astype(np.float32)
    turned = table.T if is_tied else table.T[:, :-1]
    nodes = [
        helper.make_node("MatMul", ["x", "table"], ["e"]),
        helper.make_node("Relu", ["e"], ["r"]),
        helper.make_node("MatMul", ["r", "turned"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", turned.shape[1]])],
        [
            numpy_helper.from_array(np.ascontiguousarray(array), name)
            for name, array in {"table": table, "turned": turned}.items()
        ],
    )
    opsets = [helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.save_model(model, folder / "m.onnx", save_as_external_data=True, location="m.bin")
    return folder / "m.onnx"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A model without its file of weights, which is in the folder above."""
    model = save(tmp_path / "bare")
    (tmp_path / "bare" / "m.bin").rename(tmp_path / "m.bin")
    return model


def absence(model: Path, reason: str = ": a plan contains the weights") -> str:
    return (
        f"{model}: parameter 'table': external data file '{model.parent / 'm.bin'}' does not "
        f"exist, expected it on disk{reason}"
    )


def test_a_frontier_is_the_same_without_weights(opt, tmp_path: Path) -> None:
    model = save(tmp_path / "bare", is_tied=False)
    flags = ("--pareto", "--devices", "2", "--dim", "batch=8", "--format", "json")
    whole = opt(model, *flags)
    (model.parent / "m.bin").unlink()
    bare = opt(model, *flags)
    assert (whole.status, whole.err, bare.status) == (0, "", 0)
    assert json.loads(bare.out) == json.loads(whole.out)
    assert bare.err == f"{NOTE}\n"


@pytest.mark.parametrize(
    "flags",
    [
        ("--devices", "2", "--dim", "batch=4..8:4"),
        ("--devices", "2", "--dim", "batch=8", "--compare", "data-parallel"),
        ("--devices", "2", "--dim", "batch=8", "--emit", "partition"),
        ("--emit", "import"),
        ("--pass-pipeline", "infer-shapes"),
        ("--devices", "2", "--dim", "batch=8", "--explain"),
    ],
)
def test_reports_need_no_weights(flags: tuple[str, ...], opt, bare: Path) -> None:
    outcome = opt(bare, *flags)
    assert (outcome.status, outcome.err) == (0, f"{TIES}\n")


def test_files_of_a_frontier_need_no_weights(opt, bare: Path) -> None:
    files = [bare.parent / name for name in ("r.html", "p.svg", "n.onnx", "a.onnx", "d.json")]
    flags = ("--report", "--plot", "--netron", "--annotations", "--dtensor")
    pairs = [text for pair in zip(flags, map(str, files), strict=True) for text in pair]
    outcome = opt(bare, "--devices", "2", "--dim", "batch=8", *pairs)
    assert (outcome.status, TIES in outcome.err) == (0, True)
    assert all(path.exists() for path in files)


@pytest.mark.parametrize("more", [(), ("--objective", "profile"), ("--micro-batches", "1..2")])
def test_training_steps_need_no_weights(more: tuple[str, ...], opt, bare: Path) -> None:
    outcome = opt(bare, "--devices", "2", "--dim", "batch=8", *TRAIN, *more)
    assert outcome.status == 0
    assert outcome.err.count(NOTE) == 1
    assert "tied" not in outcome.err  # training leaves copies apart


@pytest.mark.parametrize("more", [(), TRAIN, (*TRAIN, "--objective", "profile")])
def test_a_plan_is_refused_before_the_search(
    more: tuple[str, ...], refused, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Model, "program", pytest.fail)
    before = sorted(bare.parent.iterdir())
    flags = ("--devices", "2", "--dim", "batch=8", *more, "-o", bare.parent / "plan")
    assert refused(bare, *flags) == absence(bare)
    assert sorted(bare.parent.iterdir()) == before


@pytest.mark.parametrize("phase", ["rules", "search"])
def test_text_becomes_a_plan_once_the_weights_are_there(
    phase: str, opt, refused, bare: Path, tmp_path: Path
) -> None:
    text, plan = tmp_path / "t.mlir", tmp_path / "plan"
    flags = ("--devices", "2") if phase == "search" else ()
    assert opt(bare, "--emit", phase, "--dim", "batch=8", *flags, "-o", text).status == 0
    assert refused(text, "--weights", bare, "-o", plan) == absence(bare)
    assert not plan.exists()
    shutil.copy(tmp_path / "m.bin", bare.parent)
    assert opt(text, "--weights", bare, "-o", plan).status == 0
    assert (plan / "plan.json").exists()


def test_python_plans_without_weights(bare: Path, tmp_path: Path) -> None:
    model, plan = to.load(bare, {"batch": 8}), tmp_path / "plan"
    frontier = model.frontier(devices=2)
    assert TIES in frontier.notes
    with pytest.raises(to.UserError, match=re.escape(absence(bare))):
        frontier.knee.compile(plan)
    with pytest.raises(to.UserError, match=re.escape(absence(bare))):
        model.family(plan, to.Training(loss="mse:y,t"), devices=2)
    assert not plan.exists()
    shutil.copy(tmp_path / "m.bin", bare.parent)
    frontier.knee.compile(plan)
    assert (plan / "plan.json").exists()
