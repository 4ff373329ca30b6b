"""A sample of the comparison of searches with enumeration, and that it tells what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import search_seeds as fuzz

from tensoropt.compiler.search.engine import ft


def test_a_sample_is_searched_rightly() -> None:
    for seed in range(60):
        assert fuzz.faults(seed) == []


def test_a_bound_that_does_not_hold_is_said_with_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ft._run

    def hasty(*args: Any, **own: Any) -> Any:
        result = dict(run(*args, **own))
        return result | {"choices": result["choices"][:1], "epsilon": 0.0}

    monkeypatch.setattr(ft, "_run", hasty)
    assert fuzz.main(["--count", "3", "--seed", "5"]) == 1
    out = capsys.readouterr().out
    assert "seed 5: " in out
    assert "is not within 0.0 of a point" in out
    assert out.endswith("3 problems, 3 searched wrongly\n")
