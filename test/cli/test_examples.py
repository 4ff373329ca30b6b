"""What the documentation says of the commands, and the script that runs its examples again."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "rerun_examples", ROOT / "docs" / "rerun_examples.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_examples_are_found(script: ModuleType) -> None:
    commands: dict[str, list[str]] = {}
    for page in script.PAGES:
        text = page.read_text(encoding="utf-8")
        found = commands.setdefault(page.name, [])
        assert script.again(text, lambda command, found=found: found.append(command)) == text
    assert len(commands["README.md"]) == 1
    assert len(commands["planning.md"]) >= 4
    long = [command for command in commands["training.md"] if "\\\n" in command]
    assert [command for command in long if command.endswith(" -o family/")]
    assert len(commands["training.md"]) == len(long) + 1


def test_an_example_is_run_again(script: ModuleType, mlp: Path, tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    shutil.copy(mlp, tmp_path / "demo" / "mlp.onnx")
    stale = "    $ tensoropt-opt demo/mlp.onnx --pareto --mesh 2\n    stale\n\nmore\n"
    printed = script.again(stale, script.in_folder(tmp_path))
    command, head, *_, last = printed.splitlines()
    assert command == "    $ tensoropt-opt demo/mlp.onnx --pareto --mesh 2"
    assert head.startswith("    mlp.onnx on 2 x cpu: "), printed
    assert last == "more"
