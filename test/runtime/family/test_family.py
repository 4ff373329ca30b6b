"""Families as they are read: whole, or one line that says what is wrong."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_families import FLAGS, write

from tensoropt.runtime.family.document import FAMILY_SCHEMA
from tensoropt.runtime.family.family import Family
from tensoropt.runtime.plan.document import document_sha256
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.files import sha256_of

Change = Callable[[Path], object]


def test_what_a_family_says(written: Path) -> None:
    family = Family.read(written)
    assert [(p.name, p.devices) for p in family.plans] == [("1", 1), ("2", 2), ("2-lean", 2)]
    assert (family.counts, family.why_not, family.samples_per_step) == ([1, 2], {}, 512)
    assert (family.model_name, family.device, family.limit_bytes) == (
        "perceptron.onnx",
        "cpu",
        8_000_000_000,
    )
    assert family.initial == written / "initial.safetensors"
    fast, lean = family.for_devices(2), family.plan("2-lean")
    assert (fast.name, fast.path) == ("2", written / "2")
    assert fast.time_s < lean.time_s
    assert fast.process_bytes > lean.process_bytes
    assert fast.samples_per_s == pytest.approx(512 / fast.time_s)
    family.check()


def test_reading_imports_nothing_heavy(written: Path) -> None:
    code = (
        "import sys; from tensoropt.runtime.family.family import Family; "
        f"Family.read({str(written)!r}).for_devices(2); "
        "print({'numpy', 'onnx', 'onnxruntime', 'mpi4py', 'safetensors'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_schema_says_what_each_entry_is() -> None:
    schema = json.loads(FAMILY_SCHEMA.read_text())
    assert set(schema["required"]) == set(schema["properties"])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda f: f.plan("2-laen"),
            "no plan of that name in the family, expected one of 1, 2, 2-lean, got: '2-laen', "
            "did you mean '2-lean'?",
        ),
        (
            lambda f: f.for_devices(3),
            "no plan for that many devices in the family, expected one of 1, 2, got: 3",
        ),
    ],
)
def test_a_plan_that_is_not_there(written: Path, ask: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        ask(Family.read(written))
    assert str(error.value) == f"{written}: {message}"


def edited(change: Callable[[dict[str, Any]], object], *, sealed: bool = True) -> Change:
    """Return what changes family.json, and with ``sealed`` its hash as well."""

    def edit(folder: Path) -> None:
        document = json.loads((folder / "family.json").read_text())
        change(document)
        if sealed:
            document["sha256"] = document_sha256(document)
        (folder / "family.json").write_text(json.dumps(document))

    return edit


def flipped(name: str) -> Change:
    """Return what changes the last byte of a file."""

    def flip(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[-1] ^= 1
        (folder / name).write_bytes(content)

    return flip


def moved_out(name: str) -> Change:
    """Return what leaves a link to elsewhere in place of a file."""

    def move(folder: Path) -> None:
        (folder / name).rename(folder.parent / "elsewhere")
        (folder / name).symlink_to(folder.parent / "elsewhere")

    return move


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shutil.rmtree, "expected a family of plans, got: no such folder"),
        (lambda f: (f / "family.json").unlink(), "got: a folder without family.json"),
        (lambda f: (f / "family.json").write_text("{"), "family.json: cannot be read as JSON: "),
        (lambda f: (f / "family.json").write_text("[]"), "family.json: expected a JSON object"),
        (edited(lambda d: d.update(schema=2)), "schema version is not known .* expected 1, got: 2"),
        (edited(lambda d: d.pop("plans")), "family.json: top level: 'plans' is a required"),
        (
            edited(lambda d: d["plans"][0].update(name="../1")),
            r"plans\[0\].name: expected name of the folder, got: '../1'",
        ),
        (edited(lambda d: d.update(tool="mine"), sealed=False), "was changed after it was written"),
        (edited(lambda d: d["plans"][1].update(name="1")), "expected each name once, got: '1' tw"),
        (edited(lambda d: d["files"].pop("1/plan.json")), "files: expected initial.* got: 1/plan"),
        (lambda f: (f / "initial.safetensors").unlink(), "initial.safetensors is missing, which"),
        (lambda f: shutil.rmtree(f / "2"), "2/plan.json is missing, which family.json lists"),
        (moved_out("2/plan.json"), "2/plan.json leads out of the folder, expected a file inside"),
    ],
)
def test_a_family_that_cannot_be_read(family: Path, change: Change, message: str) -> None:
    change(family)
    with pytest.raises(UserError, match=message) as error:
        Family.read(family)
    assert str(error.value).startswith(str(family))
    assert "\n" not in str(error.value)


def test_a_plan_is_no_family(family: Path) -> None:
    with pytest.raises(UserError, match=r"expected a family of plans, .*, got: a plan$"):
        Family.read(family / "2")


def test_a_damaged_plan_is_found_where_it_is_asked_for(family: Path) -> None:
    flipped("2/plan.json")(family)
    found = Family.read(family)
    assert found.for_devices(1).name == "1"
    for ask in (lambda: found.plan("2"), lambda: found.for_devices(2)):
        with pytest.raises(UserError, match=r"2/plan\.json is not the one .* expected sha256 "):
            ask()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("initial.safetensors", "damaged: tensor '"),
        ("2/rank1.onnx", "2: rank1.onnx was changed after the plan was written"),
        ("2-lean/plan.json", "2-lean/plan.json is not the one that the family was written with"),
    ],
)
def test_a_check_reads_every_file(family: Path, name: str, message: str) -> None:
    flipped(name)(family)
    with pytest.raises(UserError, match=re.escape(message)):
        Family.read(family).check()


def replaced(family: Path, name: str, plan: Path) -> None:
    """Put another plan in place of one, and let family.json have its hash."""
    shutil.rmtree(family / name)
    shutil.copytree(plan, family / name)
    digest = sha256_of(family / name / "plan.json")
    edited(lambda document: document["files"].update({f"{name}/plan.json": digest}))(family)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--optimizer", "sgd"), "2: optimizer: expected that of "),
        (("--micro-batches", "2"), "2: samples per step: expected that of .*1, 512, got: 1024"),
        (("--clip-norm", "1"), "2: clip norm: expected that of .*1, None, got: 1.0"),
        (("--freeze", "w1"), "2: state 'w1': expected that of .*, got: None"),
    ],
)
def test_a_plan_of_another_job(
    model: Path, family: Path, tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    other = tmp_path / "other"
    write(model, "--loss", "mse:y,t", *FLAGS, *flags, "--devices", "2", "-o", other)
    replaced(family, "2", other / "2")
    with pytest.raises(UserError, match=message):
        Family.read(family).check()


def test_a_plan_for_another_number_of_devices(family: Path) -> None:
    replaced(family, "2", family / "1")
    with pytest.raises(UserError, match=r"2: ranks: expected 2, as family\.json has it, got: 1"):
        Family.read(family).check()


def test_a_plan_with_weights_of_its_own(model: Path, family: Path, tmp_path: Path) -> None:
    write(model, "--loss", "mse:y,t", "--devices", "2", "-o", tmp_path / "alone")
    replaced(family, "2", tmp_path / "alone")
    with pytest.raises(UserError, match="2: has weights of its own, expected a plan of a family"):
        Family.read(family).check()
