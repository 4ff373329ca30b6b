"""What the README says of the commands, and the script that runs its examples again."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from tensoropt.compiler.cli.arguments import EMIT

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rerun_readme", ROOT / "docs" / "rerun_readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_phase_is_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"\| `--emit PHASE` \| print the IR after (.*) \|", text)
    assert tuple(re.findall("`([a-z]+)`", row)) == EMIT


def test_examples_are_found(script: ModuleType) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    kept = script.again(text, lambda command: None)
    assert kept == text
    commands: list[str] = []
    script.again(text, commands.append)
    assert sum("--train" in command for command in commands) == 1
    assert len(commands) >= 4
    assert not any(" -o " in command for command in commands)


def test_an_example_is_run_again(script: ModuleType, mlp: Path, tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    shutil.copy(mlp, tmp_path / "demo" / "mlp.onnx")
    stale = "    $ tensoropt-opt demo/mlp.onnx --pareto --mesh 2\n    stale\n\nmore\n"
    command, head, *_, last = script.again(stale, script.in_folder(tmp_path)).splitlines()
    assert command == "    $ tensoropt-opt demo/mlp.onnx --pareto --mesh 2"
    assert head.startswith("    mlp.onnx on 2 x cpu: ")
    assert last == "more"
