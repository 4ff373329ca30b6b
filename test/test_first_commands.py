"""The README's way from `pip install` to a served model, but for the installation.

`make wheel` takes all of it.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from first_commands import ROOT, commands, run_all, write_model


def test_there_are_five_and_the_first_installs() -> None:
    install, *others = commands()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = re.fullmatch(r"pip install --find-links dist 'tensoropt\[([\w,-]+)\]'", install)
    assert wanted is not None
    assert {*wanted[1].split(",")} <= {*project["optional-dependencies"]}
    assert len(others) == 4
    assert {line.split()[0] for line in others} == {
        *("tensoropt-opt", "tensoropt-run", "tensoropt-serve", "curl")
    }


def test_the_others_lead_to_an_answer(tmp_path: Path) -> None:
    write_model(tmp_path / "model.onnx")
    answer = json.loads(run_all(tmp_path, Path(sys.executable).parent, commands()[1:]))
    (output,) = answer["outputs"]
    assert (output["name"], output["shape"]) == ("y", [1, 3])
    assert abs(sum(output["data"]) - 1) < 1e-5
