"""The registry, the passes it names, and the reference page made from them."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tensoropt.passes
from tensoropt.compiler.support.errors import UserError
from tensoropt.passes.base import Pass
from tensoropt.passes.registry import PASSES, create, pass_class

ROOT = Path(__file__).parents[2]
FOLDER = Path(next(iter(tensoropt.passes.__path__)))


@pytest.mark.parametrize("name", PASSES)
def test_one_stem_everywhere(name: str) -> None:
    cls = pass_class(name)
    assert cls.name == name
    assert cls.__name__.lower() == name.replace("-", "") + "pass"
    assert issubclass(cls, Pass)
    assert dataclasses.is_dataclass(cls)
    assert cls.__dataclass_params__.frozen


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_says_what_it_does(name: str) -> None:
    cls = pass_class(name)
    assert re.fullmatch(r"[A-Z][^\n]{10,98}\.", cls.summary)
    assert "Refuses" in (cls.__doc__ or ""), "the docstring says what the pass refuses"
    assert list((ROOT / "test" / "passes").glob(f"{name.replace('-', '_')}*"))


def test_no_pass_is_forgotten() -> None:
    stems = {
        path.stem
        for path in FOLDER.glob("*.py")
        if re.search(r"^class \w+Pass\((\w+, )?Pass\)", path.read_text(), re.MULTILINE)
    }
    assert stems - {"pipeline"} == {name.replace("-", "_") for name in PASSES}


def test_the_registry_imports_no_pass() -> None:
    code = (
        "import sys, tensoropt.passes.registry\n"
        "print(sorted(name for name in sys.modules if 'mlir' in name or name == 'numpy'))"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_options_by_type() -> None:
    made = create("search-strategies", {"mesh": "2x2", "seed": "7", "epsilon": "0.5"})
    assert (made.mesh, made.seed, made.epsilon) == ("2x2", 7, 0.5)


def test_an_error_about_an_option_names_the_pass_and_the_option() -> None:
    message = r"pass 'search-strategies': search-time: expected seconds, at least 0, got: '-1.0'"
    with pytest.raises(UserError, match=message):
        create("search-strategies", {"search-time": "-1"})
    with pytest.raises(UserError, match="pass 'search-strategies': mesh: expected positive sizes"):
        create("search-strategies", {"mesh": "0"})


def test_unknown_pass() -> None:
    with pytest.raises(UserError, match=r"unknown pass 'partitoin'.*did you mean 'partition'\?$"):
        pass_class("partitoin")


def test_reference_pages_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for path, made in generate.PAGES.items():
        assert path.read_text(encoding="utf-8") == made(), "run: make docs"
