"""What points say collectives hide is what the clocks say of the program that is emitted, and so is
what they say that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_steps import EVEN, ODD, Sizes, random_step

from tensoropt.compiler.cost.memory import program_memory
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.dialects import onnx
from tensoropt.dialects.topt.keys import OVERLAP, PHASE, START
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


def emitted(
    seed: int, devices: int, device: str, sizes: Sizes = EVEN
) -> Iterator[tuple[driver.ir.Module, FrontierPoint]]:
    """Yield the programs of a random plan of a small step, and the point of each: with ample memory
    it may hide more."""
    request = Request(devices, search="random", seed=seed, device=device)
    result = driver.frontier(random_step(seed, sizes), request)
    for point in result.points:
        module = random_step(seed, sizes)
        driver.settle(module, point, request, result)
        driver.advance(module, "partition")
        yield module, point


def test_a_point_hides_what_its_program_does(hidden_s: list[float]) -> None:
    told = list[float]()
    for seed in range(10):
        devices = (2, 3, 4, 4)[seed % 4]
        hidden_s[:] = []
        for _, point in emitted(seed, devices, BESIDE):
            told.append(point.hidden_s)
            found = sum(hidden_s)
            assert found == pytest.approx(point.hidden_s, rel=1e-9, abs=1e-15), (seed, devices)
            hidden_s[:] = []
    assert sum(seconds > 0 for seconds in told) > 1


def test_a_point_with_padding_hides_and_takes_what_its_program_does(hidden_s: list[float]) -> None:
    padded = hides = 0
    for seed in range(8):
        devices = (3, 4, 6)[seed % 3]
        hidden_s[:] = []
        for module, point in emitted(seed, devices, BESIDE, ODD):
            ops = onnx.function(module).regions[0].blocks[0]
            padded += any(op.operation.name == "onnx.Pad" for op in ops)
            found = sum(hidden_s)
            assert found == pytest.approx(point.hidden_s, rel=1e-9, abs=1e-15), (seed, devices)
            assert program_memory(module).transient_bytes == point.transient_bytes, (seed, devices)
            hides += found > 0
            hidden_s[:] = []
    assert padded > 5
    assert hides > 5


def test_what_is_under_way_takes_what_its_point_says() -> None:
    new_state = ample = 0
    for seed, devices in ((3, 4), (4, 2), (7, 4), (8, 2)):
        for module, point in emitted(seed, devices, EAGER):
            assert program_memory(module).transient_bytes == point.transient_bytes, (seed, devices)
            ops = onnx.function(module).regions[0].blocks[0]
            started = [op for op in ops if START.on(op.attributes)]
            new_state += sum(PHASE.get(op.attributes) == "update" for op in started)
            is_ample = OVERLAP.get(module.operation.attributes) == "ample"
            assert is_ample == point.tables.has_ample_memory
            ample += is_ample
    assert new_state > 2
    assert 1 < ample < 4
