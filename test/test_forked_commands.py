"""A test of what runs the lit tests: it hears of every command that does not end as it should."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import forked_commands
import pytest

ECHO = "func.func private @echo()\n"


@pytest.fixture
def failures(tmp_path: Path):
    def run(line: str, text: str = ECHO) -> str:
        path = tmp_path / "test.mlir"
        path.write_text(text)
        config = SimpleNamespace(environment=dict(os.environ))
        test = SimpleNamespace(getSourcePath=lambda: str(path), config=config)
        return forked_commands.failures(f"%dbg(RUN: at line 1) {line}", test)

    return run


def test_what_is_expected_passes(failures) -> None:
    assert failures("tensoropt-opt %s | filecheck %s", f"// CHECK: @echo\n{ECHO}") == ""
    assert failures("not tensoropt-opt %s -p mist 2>&1 | filecheck %s", "// CHECK: error: ") == ""


def test_another_output_fails(failures) -> None:
    said = failures("tensoropt-opt %s | filecheck %s", f"// CHECK: @other\n{ECHO}")
    assert "filecheck: exit status 1\n" in said
    assert 'Couldn\'t match "@other"' in said


def test_another_status_fails(failures) -> None:
    said = failures("tensoropt-opt %s -p mist | filecheck %s", "// CHECK-NOT: error")
    assert "tensoropt-opt: exit status 1\nerror: " in said
    assert "not: exit status 1\n" in failures("not tensoropt-opt %s")


@pytest.mark.parametrize("line", ["tensoropt-opt %s", "not tensoropt-opt %s"])
def test_a_signal_fails(failures, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    def ends() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setitem(forked_commands.COMMANDS, "tensoropt-opt", ends)
    assert "exit status -9\n" in failures(line)


def test_an_exception_fails(failures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(forked_commands.COMMANDS, "tensoropt-opt", lambda: 1 // 0)
    assert "ZeroDivisionError" in failures("tensoropt-opt %s")


@pytest.mark.parametrize("line", ["cat %s", "tensoropt-opt %s > %t", "tensoropt-opt < %s"])
def test_other_lines_are_refused(failures, line: str) -> None:
    with pytest.raises(ValueError, match="expected tensoropt-opt or filecheck and no file but %s"):
        failures(line)
