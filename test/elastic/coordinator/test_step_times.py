"""Times of steps: on the clock of the coordinator, and in the stall of a switch."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tensoropt.elastic.coordinator.coordinator import Coordinator
from tensoropt.elastic.coordinator.switch import Switch
from tensoropt.runtime.family.family import FamilyPlan


def test_a_step_ends_on_the_clock_of_the_coordinator() -> None:
    """The clock of another machine began at another time."""
    added: list[dict[str, Any]] = []
    generation = SimpleNamespace()
    job = SimpleNamespace(
        current=generation, step=1, add_step=lambda generation, row: added.append(row)
    )
    rank = SimpleNamespace(number=0, own_times_s=[], ahead_s=100.0)
    rows = [{"step": step, "end_at": 5.0 + step, "own_s": None} for step in (1, 2)]
    Coordinator._on_steps(SimpleNamespace(_job=job), generation, rank, rows)  # type: ignore[arg-type]
    assert [(row["step"], row["end_at"]) for row in added] == [(2, 107.0)]


def test_the_first_step_after_a_switch_is_compared_with_three_others() -> None:
    """One step alone may be slow too."""
    plan = FamilyPlan("4", 4, Path("4"), 0.1, 10.0, 1)
    switch = Switch(2, plan, (), "live", Future(), stopped_at=10.0, stood_at=10.5, taken_at=11.0)
    times_s = [0.5, 0.9, 0.1, 0.2]
    enough = [
        switch.add_step({"end_at": 12.0 + number, "time_s": time_s})
        for number, time_s in enumerate(times_s)
    ]
    assert enough == [False, False, False, True]
    result = switch.result()
    assert result.phases_s == pytest.approx(
        {"stop": 0.5, "move": 0.5, "start": 0.5, "first_step": 0.3}
    )
    assert result.stall_s == pytest.approx(1.8)


def test_a_switch_to_slow_steps_is_complete_after_one() -> None:
    """Other work may have the cores; the first step is then compared with nothing."""
    plan = FamilyPlan("4", 4, Path("4"), 0.1, 10.0, 1)
    switch = Switch(2, plan, (), "live", Future(), stopped_at=10.0, stood_at=10.5, taken_at=11.0)
    assert switch.add_step({"end_at": 48.5, "time_s": 37.0})
    phases = {"stop": 0.5, "move": 0.5, "start": 0.5, "first_step": 0.0}
    assert switch.result().phases_s == pytest.approx(phases)
