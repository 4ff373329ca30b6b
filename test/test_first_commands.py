"""The README's blocks lead to answers with the packages that its installations bring.

The environment of the tests has more packages; those are hidden. `make wheel` installs in earnest.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from first_commands import (
    FIRST,
    NOT_RUN,
    ROOT,
    blocks,
    commands,
    run_all,
    run_block,
    runnable,
    write_files,
    write_model,
)

_HIDING = """\
import sys
from importlib.machinery import PathFinder


class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if path is None and name in {hidden}:
            return None
        return PathFinder.find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""
"""Hides packages of the environment from the programs that run in it."""


def _extras_of(text: str) -> set[str]:
    found = re.search(r"\[([\w,-]+)\]", text)
    assert found is not None, text
    return set(found[1].split(","))


def _installed_by(extras: set[str]) -> set[str]:
    """Return the names of the packages that these extras need, and those that they need."""
    found, waiting = set[tuple[str, str]](), [("tensoropt", extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # a dependency for another system
            continue
        for need in map(Requirement, needs):
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                own = need.name.lower().replace("_", "-")
                waiting += [(own, more) for more in ("", *need.extras)]
    return {name for name, _ in found}


@pytest.fixture(scope="module")
def hiding(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the variables with which programs see only what the README installs."""
    own = _installed_by(_extras_of(commands()[0]))
    hidden = {
        top
        for top, packages in metadata.packages_distributions().items()
        if not own & {package.lower().replace("_", "-") for package in packages}
    }
    assert {"torch", "pytest", "ray"} <= hidden
    assert not {"grpc", "tokenizers", "onnxruntime", "torch_mlir", "tensoropt"} & hidden
    folder = tmp_path_factory.mktemp("hiding")
    (folder / "sitecustomize.py").write_text(_HIDING.format(hidden=hidden), encoding="utf-8")
    return {"PYTHONPATH": str(folder)}


def test_all_installations_bring_the_same() -> None:
    install, *others = commands()
    wheel = shlex.split(install)
    assert wheel[:4] == ["pip", "install", "--find-links", "dist"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = _extras_of(wheel[4])
    assert extras <= {*project["optional-dependencies"]}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    made = re.search(r"^\$\(PRODUCT\): EXTRAS := (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert made is not None
    assert extras == {*made[1].split(",")}
    from_source = re.findall(r"pip install '\.(\[[\w,-]+\])'", readme)
    assert [_extras_of(text) for text in from_source] == [extras, {"cuda"}]
    assert {line.split()[0] for line in others} == {
        *("tensoropt-opt", "tensoropt-run", "tensoropt-serve", "curl")
    }


def test_every_block_is_run() -> None:
    lines = re.findall(r"^    \S.*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    commanded = [line.removeprefix("    $ ") for line in lines if line.startswith("    $ ")]
    assert commanded == [line for block in blocks() for line in block.commands]
    left_out = [block.section for block in blocks() if block.section in NOT_RUN]
    assert left_out == ["GPUs"]
    assert len([*runnable()]) == len([*blocks()]) - 1
    assert [block.section for block in blocks() if block.python] == ["Run"]


def test_the_first_section_leads_to_an_answer(tmp_path: Path, hiding: dict[str, str]) -> None:
    write_model(tmp_path / "model.onnx")
    block = next(block for block in runnable() if block.section == FIRST)
    answer = json.loads(run_block(tmp_path, Path(sys.executable).parent, block, hiding))
    (output,) = answer["outputs"]
    assert (output["name"], output["shape"]) == ("y", [1, 3])
    assert abs(sum(output["data"]) - 1) < 1e-5


def test_all_blocks_run(tmp_path: Path, hiding: dict[str, str]) -> None:
    write_files(tmp_path)
    run_all(tmp_path, Path(sys.executable).parent, hiding)
