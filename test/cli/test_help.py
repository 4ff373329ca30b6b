"""The short help fits a screen; the long one has every flag."""

from __future__ import annotations

import pytest

from tensoropt.compiler.cli.arguments import build_parser
from tensoropt.compiler.cli.opt import main

LINES, COLUMNS = 45, 100


def printed(capsys: pytest.CaptureFixture[str], flag: str) -> str:
    with pytest.raises(SystemExit):
        main([flag])
    return capsys.readouterr().out


def test_the_short_help_fits_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "--help").splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    text = "\n".join(lines)
    assert all(flag in text for flag in ("--devices", "--memory", "--pareto", "--help-all"))
    assert "--mlir-timing" not in text


def test_the_long_help_has_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--help-all")
    flags = [*build_parser().flags()]
    assert len(flags) > 50
    assert [flag for flag in flags if flag not in text] == []
