"""The plan directory appears whole or not at all, and replaces nothing but a plan."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path

import pytest

from tensoropt.compiler.exporter.plan.writer import (
    PLAN_FILE,
    check_replaceable,
    plan_folder,
    write_plan,
)
from tensoropt.compiler.support.errors import UserError

HASH = "0" * 64
FIGURES = {"time_s": 0.5, "compute_s": 0.5, "communication_s": 0.0}
SIZES = {"memory_bytes": 3, "static_bytes": 2, "transient_bytes": 1}


def document() -> dict[str, object]:
    tensor = {"name": "x", "dtype": "float32", "shape": [4, "seq"], "layout": ["S(0)", "R"]}
    return {
        "schema": 1,
        "tool": "tensoropt 0.1.0",
        "model": {"name": "m.onnx", "sha256": HASH},
        "device": "cpu",
        "mesh": {"shape": [2, 1]},
        "ranks": 2,
        "search": {"name": "ft", "seed": None, "epsilon": 0.0},
        "frontier": [{"index": 0, "mesh": [2, 1], **FIGURES, **SIZES}],
        "chosen": 0,
        "predicted": {**FIGURES, **SIZES, "expected_error": None},
        "inputs": [tensor],
        "outputs": [tensor],
        "parameters": [],
        "strategies": [{"node": "n", "op": "Relu", "operands": [["R", "R"], []], "results": []}],
    }


def make_plan(directory: Path) -> None:
    with plan_folder(directory) as folder:
        (folder / "weights").mkdir()
        (folder / "weights" / "all.bin").write_bytes(b"abc")
        (folder / "rank0.onnx").write_bytes(b"graph")
        write_plan(folder, document())


def test_plan_lists_its_files(tmp_path: Path) -> None:
    make_plan(tmp_path / "plan")
    text = (tmp_path / "plan" / PLAN_FILE).read_text()
    found = json.loads(text)
    assert list(found) == [*document(), "files", "sha256"]
    assert list(found["files"]) == ["rank0.onnx", "weights/all.bin"]
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert found["files"]["weights/all.bin"] == abc
    assert text.endswith("}\n")
    assert text.startswith('{\n  "schema": 1,\n')
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_same_plan_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_plan(tmp_path / name)
    assert (tmp_path / "a" / PLAN_FILE).read_bytes() == (tmp_path / "b" / PLAN_FILE).read_bytes()


def test_a_plan_is_replaced_whole(tmp_path: Path) -> None:
    make_plan(tmp_path / "plan")
    with plan_folder(tmp_path / "plan") as folder:
        (folder / "rank1.onnx").write_bytes(b"other")
        write_plan(folder, document())
    found = sorted(path.name for path in (tmp_path / "plan").iterdir())
    assert found == [PLAN_FILE, "rank1.onnx"]
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    make_plan(tmp_path / "plan")
    before = (tmp_path / "plan" / PLAN_FILE).read_bytes()
    full = (
        "no space left on device, free some space or choose another place "
        r"\(the partial plan was removed\)"
    )
    with pytest.raises(UserError, match=full), plan_folder(tmp_path / "plan") as folder:
        (folder / "rank0.onnx").write_bytes(b"half a gra")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert (tmp_path / "plan" / PLAN_FILE).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), plan_folder(tmp_path / "plan") as folder:
        (folder / "rank0.onnx").write_bytes(b"x")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_failed_swap_puts_the_old_plan_back(tmp_path: Path, monkeypatch) -> None:
    make_plan(tmp_path / "plan")
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.suffix == ".tmp":
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="Input/output"):
        make_plan(tmp_path / "plan")
    assert (tmp_path / "plan" / PLAN_FILE).exists()
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_free_and_empty_places_are_taken(tmp_path: Path) -> None:
    check_replaceable(tmp_path / "new")
    (tmp_path / "empty").mkdir()
    make_plan(tmp_path / "empty")
    assert (tmp_path / "empty" / PLAN_FILE).exists()


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        check_replaceable(path)
    return str(caught.value)


def test_a_folder_that_is_no_plan(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "expected a new folder or a plan, got: a folder with 'thesis.tex'" in refusal(tmp_path)


OTHERS = ["", "[]", "{}", '{"tool": "other 1", "files": {"a": ""}}', "\xff"]


@pytest.mark.parametrize("text", OTHERS)
def test_a_folder_with_another_plan_json(tmp_path: Path, text: str) -> None:
    (tmp_path / PLAN_FILE).write_text(text, encoding="latin-1")
    (tmp_path / "a").write_text("a")
    assert "a folder with 'a', which is not part of a plan" in refusal(tmp_path)


def test_a_plan_with_a_file_of_somebody_else(tmp_path: Path) -> None:
    make_plan(tmp_path / "plan")
    (tmp_path / "plan" / "notes.txt").write_text("mine")
    assert "a folder with 'notes.txt'" in refusal(tmp_path / "plan")


def test_a_file_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "plan").write_text("")
    assert "expected a new folder or a plan, got: a file" in refusal(tmp_path / "plan")


def test_a_link_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "link").symlink_to(tmp_path)
    assert "a folder with 'inner/link'" in refusal(tmp_path)


def test_a_mount_point(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "is_mount", lambda path: path == tmp_path)
    assert refusal(tmp_path) == f"-o {tmp_path}: is a mount point, expected a folder inside it"


def test_a_missing_parent(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected an existing folder"):
        make_plan(tmp_path / "no" / "plan")


def test_what_the_schema_refuses(tmp_path: Path) -> None:
    wrong = document()
    (tmp_path / "rank0.onnx").write_bytes(b"graph")
    wrong["inputs"] = [{"name": "x", "dtype": "complex64", "shape": [1], "layout": ["R", "R"]}]
    what = r"plan\.json: inputs\[0\]\.dtype: 'complex64' is not one"
    with pytest.raises(UserError, match=what):
        write_plan(tmp_path, wrong)
    assert not (tmp_path / PLAN_FILE).exists()


def test_every_entry_is_documented() -> None:
    root = Path(__file__).parents[2]
    schema = json.loads((root / "runtime" / "plan" / "plan.schema.json").read_text())
    page = (root / "docs" / "plan-format.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9]+)[.`]", page.split("### Costs")[0], re.MULTILINE)
    assert list(dict.fromkeys(rows)) == list(schema["properties"])


def test_infinity_is_no_json(tmp_path: Path) -> None:
    wrong = document()
    (tmp_path / "rank0.onnx").write_bytes(b"graph")
    wrong["predicted"] = {**wrong["predicted"], "time_s": float("inf")}
    with pytest.raises(ValueError, match="Out of range float"):
        write_plan(tmp_path, wrong)
