"""What a plan directory must hold: every way to spoil one gives one clear line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from handmade import Perceptron, edit

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError


def refused(folder: Path) -> str:
    with pytest.raises(UserError) as error:
        Plan.load(folder)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_a_plan_is_read(plan: Path) -> None:
    found = Plan.load(plan)
    assert (found.ranks, found.mesh) == (2, (1, 2))
    assert [(t.name, t.shape) for t in found.inputs] == [("x", (4, 6))]
    assert found.graph(1) == plan / "rank1.onnx"
    assert Plan.read(plan) == found


def test_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    text = "expected a plan directory, got: "
    assert refused(tmp_path / "no") == f"{tmp_path / 'no'}: {text}no such folder"
    assert refused(tmp_path / "file") == f"{tmp_path / 'file'}: {text}a file"


def test_not_a_plan(tmp_path: Path) -> None:
    assert refused(tmp_path) == f"{tmp_path}: not a plan directory, it has no plan.json"


@pytest.mark.parametrize(
    "text", [pytest.param("[" * 100_000, id="deep"), "{", "\x00", '{"schema": 1']
)
def test_not_json(plan: Path, text: str) -> None:
    (plan / "plan.json").write_text(text)
    assert "plan.json: cannot be read as JSON: " in refused(plan)


def test_not_an_object(plan: Path) -> None:
    (plan / "plan.json").write_text("[]")
    assert refused(plan).endswith("plan.json: expected a JSON object")


def set_to(*path: str | int, value: Any) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_to("schema", value=2), "schema version is not known to this tensoropt, expected 1"),
        (lambda c: c.pop("mesh"), "top level: 'mesh' is a required property"),
        (set_to("colour", value=1), "top level: Additional properties are not allowed ('colour'"),
        (set_to("mesh", "shape", value=[]), "mesh.shape: [] should be non-empty"),
        (set_to("mesh", "shape", value=[0]), "mesh.shape[0]: 0 is less than the minimum of 1"),
        (set_to("ranks", value="2"), "ranks: '2' is not of type 'integer'"),
        (set_to("ranks", value=3), "ranks: expected the mesh's 2, got: 3"),
        (set_to("inputs", 0, "dtype", value="float"), "inputs[0].dtype: 'float' is not one of"),
        (
            set_to("inputs", 0, "layout", value=["S", "R"]),
            "inputs[0].layout[0]: expected R, S(dimension), S(dimension, turn), "
            "S(dimension of blocks), P(sum), P(max) or P(min), got: 'S'",
        ),
        (set_to("inputs", 0, "layout", value=["R"]), "input 'x': layout R: expected 2 placements"),
        (
            set_to("inputs", 0, "layout", value=["R", "S(2)"]),
            "input 'x': layout shards dimension 2, expected one of 2 dimensions",
        ),
        (
            set_to("outputs", 0, "layout", value=["R", "S(1 of 2)"]),
            "output 'y': dimension 1 does not divide into 2 parts, got: 5",
        ),
        (
            set_to("inputs", 0, "layout", value=["P(sum)", "R"]),
            "input 'x': expected R or S, got: a partial layout",
        ),
        (set_to("model", "sha256", value="12"), "model.sha256: expected 64 hexadecimal digits"),
        (set_to("files", value={"a": "0" * 64}), "files: expected rank0.onnx among them"),
        (set_to("predicted", "time_s", value=-1), "predicted.time_s: -1 is less than the minimum"),
    ],
)
def test_a_spoilt_document(plan: Path, change: Callable[[Any], Any], message: str) -> None:
    assert message in refused(edit(plan, change))


@pytest.mark.parametrize(
    "change",
    [
        set_to("outputs", 0, "layout", value=["R", "R"]),
        set_to("predicted", "memory_bytes", value=1),
        set_to("device", value="h200"),
        lambda c: c.pop("sha256"),
        lambda c: c["files"].pop("rank1.onnx"),
    ],
)
def test_an_edited_document(plan: Path, change: Callable[[Any], Any]) -> None:
    path = plan / "plan.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    message = refused(plan)
    if "rank1.onnx" in content["files"]:
        assert message.startswith(f"{path}: was changed after it was written, expected sha256 ")
        assert message.endswith(f"compile it: tensoropt-opt MODEL --strategies {path} -o NEW)")
    else:
        assert message == f"{path}: files: expected rank1.onnx among them"


def test_another_order_of_the_same_entries_is_no_edit(plan: Path) -> None:
    content = json.loads((plan / "plan.json").read_text())
    (plan / "plan.json").write_text(json.dumps(dict(reversed(content.items()))))
    assert Plan.load(plan).ranks == 2


def test_a_long_value_is_shortened(plan: Path) -> None:
    message = refused(edit(plan, set_to("inputs", value="x" * 10000)))
    assert len(message) < 400
    assert message.endswith("is not of type 'array'")


@pytest.mark.parametrize("name", ["../model.onnx", "weights/../../x", "/etc/passwd"])
def test_paths_stay_inside(plan: Path, name: str) -> None:
    message = refused(edit(plan, set_to("files", name, value="0" * 64)))
    assert message.endswith(f"files: expected a path inside, got: {name}")


def test_a_link_out_of_the_folder(plan: Path, perceptron: Perceptron) -> None:
    (plan / "rank1.onnx").unlink()
    (plan / "rank1.onnx").symlink_to(perceptron.model)
    assert refused(plan).endswith("rank1.onnx leads out of the folder, expected a file inside")


def test_a_missing_graph(plan: Path) -> None:
    (plan / "rank1.onnx").unlink()
    assert refused(plan) == f"{plan}: rank1.onnx is missing"


def test_an_edited_graph(plan: Path) -> None:
    with (plan / "rank1.onnx").open("ab") as file:
        file.write(b"\0")
    expected = json.loads((plan / "plan.json").read_text())["files"]["rank1.onnx"]
    message = refused(plan)
    assert message.startswith(f"{plan}: rank1.onnx was changed after the plan was written")
    assert f"expected sha256 {expected}, got: " in message


def test_another_model(plan: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(b"x")
    with pytest.raises(UserError, match=r"not the model that .* was made from, expected percep"):
        Plan.load(plan).check_model(other)
    with pytest.raises(UserError, match=r"none\.onnx: no such model"):
        Plan.load(plan).check_model(tmp_path / "none.onnx")
