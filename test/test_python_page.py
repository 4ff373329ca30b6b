"""What docs/python.md shows is what happens; `make examples` trains as well, which takes longer."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
from zoo import cnn_path, randomise

PAGE = Path(__file__).parents[1] / "docs" / "python.md"
_TRAINING = re.compile(r"^## Training\n.*?(?=^## )", re.MULTILINE | re.DOTALL)


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("demo").mkdir()
    randomise(cnn_path("resnet50"), Path("demo/resnet50.onnx"))
    text, sections = _TRAINING.subn("", PAGE.read_text(encoding="utf-8"))
    examples = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    assert sections == 1
    assert len(examples.examples) > 15
    assert doctest.DocTestRunner().run(examples).failed == 0
