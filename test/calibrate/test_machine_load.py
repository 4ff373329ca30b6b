"""How busy a machine is, from what Linux counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tensoropt.compiler.calibrate import machine_load


@pytest.fixture
def stat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine_load, "_STAT", tmp_path / "stat")
    return tmp_path / "stat"


def counted(stat: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> float | None:
    """Return the part between two readings: user, nice, system, idle, iowait and others."""
    texts: Iterator[str] = iter(lines)
    stat.write_text(next(texts))
    monkeypatch.setattr(machine_load.time, "sleep", lambda seconds: stat.write_text(next(texts)))
    return machine_load.busy_fraction(0.5)


def test_the_part_that_was_not_idle(stat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = "cpu  100 0 0 500 0 0 0 0 100\nx", "cpu  130 10 10 540 10 0 0 0 130\nx"
    assert counted(stat, monkeypatch, before, after) == pytest.approx(0.5)


def test_a_clock_that_stands_says_nothing(stat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "cpu  1 2 3 4 5 6 7 8 9\n"
    assert counted(stat, monkeypatch, text, text) is None


def test_a_machine_that_does_not_count(stat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_load.time, "sleep", lambda seconds: None)
    assert machine_load.busy_fraction(0.5) is None
