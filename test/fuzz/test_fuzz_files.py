"""A sample of damaged files, and that a use of them that goes wrong is found."""

from __future__ import annotations

import random
from pathlib import Path

import fuzz_files
import pytest
from fuzz_files import run_all


def test_a_sample_is_refused_or_the_same(tmp_path: Path) -> None:
    outcomes = run_all(tmp_path, 8, seed=3)
    failed = [f"{each.what}: {each.text}" for each in outcomes if each.kind == "failed"]
    assert not failed, "\n".join(failed)
    assert any(each.kind == "refused" for each in outcomes)


def test_other_numbers_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a checkpoint were read without a look at its digests."""
    (tmp_path / "log").write_text('{"loss": 1.5}\n')
    subject = fuzz_files.Subject("x", tmp_path, ("log",), lambda a, b: [], fuzz_files._losses)
    done = fuzz_files.subprocess.CompletedProcess([], 0, "", "")
    found = fuzz_files._judged("case", done, subject, tmp_path / "log", [1.0])
    assert (found.kind, found.text) == ("failed", "other numbers: [1.5], expected [1.0]")


def test_every_damage_changes_a_file() -> None:
    rng, data = random.Random(0), bytes(range(1, 256)) * 20
    changed = [fuzz_files.damage(data, b"other", rng)[1] != data for _ in range(100)]
    assert all(changed)
