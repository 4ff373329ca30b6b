"""What points say collectives hide is what the clocks say of the program that is emitted, and so is
what they say that it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_steps import random_step

from tensoropt.compiler.cost.memory import program_memory
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.search.frontier.request import Request
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.dialects import onnx
from tensoropt.dialects.topt.keys import PHASE, START
from tensoropt.passes import overlap_collectives

BESIDE, EAGER = (
    str(Path(__file__).parents[1] / "devices" / f"{name}.toml") for name in ("beside", "eager")
)


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


def emitted(seed: int, devices: int, device: str) -> tuple[driver.ir.Module, FrontierPoint]:
    """Return the programs of a random plan of a small step, and its point."""
    module = random_step(seed)
    request = Request(devices, search="random", seed=seed, device=device)
    result = driver.frontier(module, request)
    (point,) = result.points
    driver.settle(module, point, request, result)
    driver.advance(module, "partition")
    return module, point


def test_a_point_hides_what_its_program_does(hidden_s: list[float]) -> None:
    told = list[float]()
    for seed in range(10):
        devices = (2, 3, 4, 4)[seed % 4]  # of three, what they divide
        hidden_s[:] = []
        _, point = emitted(seed, devices, BESIDE)
        told.append(point.hidden_s)
        assert sum(hidden_s) == pytest.approx(point.hidden_s, rel=1e-9, abs=1e-15), (seed, devices)
    assert sum(seconds > 0 for seconds in told) > 1


def test_what_is_under_way_takes_what_its_point_says() -> None:
    new_state = 0
    for seed, devices in ((3, 4), (4, 2), (7, 4), (8, 2)):
        module, point = emitted(seed, devices, EAGER)
        assert program_memory(module).transient_bytes == point.transient_bytes, (seed, devices)
        started = [
            op for op in onnx.function(module).regions[0].blocks[0] if START.on(op.attributes)
        ]
        new_state += sum(PHASE.get(op.attributes) == "update" for op in started)
    assert new_state > 2
