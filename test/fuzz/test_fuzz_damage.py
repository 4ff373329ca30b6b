"""A sample of damaged models, and that what must not happen is told apart."""

from __future__ import annotations

import os
import time
from typing import Any

import fuzz_damage as damage
import pytest
from fuzz_damage import Case, compile_all, damaged


def test_a_sample_is_refused_or_compiled() -> None:
    cases = list(damaged(60, seed=11))
    failures = [failure for failure in compile_all(cases) if failure is not None]
    assert not failures, "\n".join(f"{f.case.name}: {f.what}" for f in failures)


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (lambda case, folder: os.abort(), "the process ended by SIGABRT"),
        (lambda case, folder: time.sleep(60), "not done in 1 s"),
        (lambda case, folder: "status 1: two lines", "status 1: two lines"),
    ],
)
def test_failures_are_found(does: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "_compile", does)
    monkeypatch.setattr(damage, "_SECONDS", 1)
    cases = [Case("one", b""), Case("two", b"")]
    assert [failure and failure.what for failure in compile_all(cases)] == [said, said]
