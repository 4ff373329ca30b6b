"""What points say collectives hide is what the clocks say of the program that is emitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_steps import random_step

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.search.frontier.request import Request
from tensoropt.passes import overlap_collectives

BESIDE = str(Path(__file__).parents[1] / "devices" / "beside.toml")


@pytest.fixture
def hidden_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the pass finds to hide in each program."""
    found, clocks = list[float](), overlap_collectives.overlap

    def noting(*arguments: Any) -> Any:
        events, seconds = clocks(*arguments)
        found.append(seconds)
        return events, seconds

    monkeypatch.setattr(overlap_collectives, "overlap", noting)
    return found


def test_a_point_hides_what_its_program_does(hidden_s: list[float]) -> None:
    told = list[float]()
    for seed in range(10):
        devices = (2, 3, 4, 4)[seed % 4]  # three cut into parts that differ
        request = Request(devices, search="random", seed=seed, device=BESIDE)
        module, hidden_s[:] = random_step(seed), []
        result = driver.frontier(module, request)
        (point,) = result.points
        driver.settle(module, point, request, result)
        driver.advance(module, "partition")
        told.append(point.hidden_s)
        assert sum(hidden_s) == pytest.approx(point.hidden_s, rel=1e-9, abs=1e-15), (seed, devices)
    assert sum(seconds > 0 for seconds in told) > 1
