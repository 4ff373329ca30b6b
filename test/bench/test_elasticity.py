"""Random switches, comparisons and results of elastic jobs, without a job."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from elasticity import results
from elasticity.curves import Curve, drawn
from elasticity.overhead import WAYS, Way, added_share
from elasticity.stalls import Move, Stall

from tensoropt.elastic.control import StepRow, SwitchResult

_PHASES = {"stop": 0.01, "move": 0.02, "start": 0.0, "first_step": 0.01}


def _way(turns_s: list[float], cpu_s: list[float]) -> Way:
    return Way([], 0, Path(), turns_s, cpu_s, len(turns_s))


def _ways() -> dict[str, Way]:
    plain = _way([1.0, 4.0, 2.0], [1.0, 2.0, 1.0])
    return {
        WAYS[0]: plain,
        WAYS[1]: _way([1.1, 4.0, 2.4], [1.01, 2.02, 1.03]),
        WAYS[2]: _way([1.3, 4.0, 3.0], [1.21, 2.42, 1.0]),
    }


def test_every_drawn_switch_leads_to_another_plan() -> None:
    family = SimpleNamespace(plans=[SimpleNamespace(name=name) for name in ("1", "2", "4")])
    found = drawn(family, 200, 20, seed=1)
    plans = ["1", *found.values()]
    assert len(found) == 20 and max(found) < 150
    assert all(a != b for a, b in pairwise(plans))


def test_turns_are_compared_in_pairs() -> None:
    assert added_share(_ways(), WAYS[1], cpu=False) == pytest.approx(0.1)
    assert added_share(_ways(), WAYS[1], cpu=True) == pytest.approx(0.01)


def test_snapshots_count_as_often_as_they_are_taken() -> None:
    facts = results.overhead_facts("cnn", _ways())
    assert facts["snapshots_cpu"] == pytest.approx((0.21 - 0.01) / 10)


def _result(method: str, stall_s: float, moved_bytes: int) -> SwitchResult:
    return SwitchResult(1, 2, 5, method, 3.0, stall_s, moved_bytes, "memory", phases_s=_PHASES)


def test_the_limit_is_two_steps_and_the_bytes() -> None:
    live = _result("live", 0.04, 1000)
    resumed = _result("stop-resume", 4.0, 0)
    stalls = {
        "live": [Stall(live, 0.3, 0.6, 0.2)],
        "stop-resume": [Stall(resumed, 0.3, 0.3, 0.2)],
    }
    move = Move("1", "2", stalls)
    facts = results.move_facts("cnn", move, copied_per_s=1e4)
    assert facts["limit_s"] == pytest.approx(2 * 0.2 + 0.1)
    assert facts["ratio"] == pytest.approx(0.01)
    assert facts["slower"] == pytest.approx(2.0)


def test_parts_that_are_not_measured_keep_their_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "_FIGURES", tmp_path / "figures.json")
    monkeypatch.setattr(results, "_PICTURE", tmp_path / "picture.svg")
    monkeypatch.setattr(results, "write_section", lambda name, text: None)
    rows = [StepRow(1, 2.0, 0.1, 1, 1), StepRow(2, 1.0001, 0.1, 2, 2)]
    curve = results.curve_facts("cnn", Curve([2.0, 1.0], rows, [], 16))
    results.write_all({"overhead": [results.overhead_facts("gpt2", _ways())]}, is_kept=True)
    text = results.write_all({"curves": [curve]}, is_kept=True)
    assert "| cnn | 2 | 0 | 1.0e-04 | the same 16, in order |" in text
    assert "| gpt2 |" in text
    assert json.loads((tmp_path / "figures.json").read_text()).keys() == {"overhead", "curves"}
