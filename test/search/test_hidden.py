"""What points say collectives hide is what the clocks say of the program that is emitted, and so is
what they say that it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_steps import EVEN, ODD, Sizes, random_step
from training.steps import Node, model_of

import tensoropt as to
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


@pytest.fixture
def hidden_of_graphs(monkeypatch: pytest.MonkeyPatch, hidden_s: list[float]) -> list[float]:
    """The seconds that the pass hides in each graph of plans with stages, in their order."""
    found, run = list[float](), overlap_collectives.OverlapCollectivesPass.run

    def noting(own: overlap_collectives.OverlapCollectivesPass, module: driver.ir.Module) -> None:
        hidden_s[:] = []
        run(own, module)
        found.append(sum(hidden_s))

    monkeypatch.setattr(overlap_collectives.OverlapCollectivesPass, "run", noting)
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


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "interleaved"])
def test_stages_hide_what_their_graphs_do(
    schedule: str, hidden_of_graphs: list[float], tmp_path: Path
) -> None:
    rng, micro_batches, stages = np.random.default_rng(0), 4, 2
    weights = {f"w{n}": rng.standard_normal((64, 64)).astype(np.float32) for n in range(6)}
    nodes: list[Node] = [
        ("MatMul", [f"h{n - 1}" if n else "x", name], f"h{n}", {}) for n, name in enumerate(weights)
    ]
    nodes.append(("ReduceMean", [f"h{len(weights) - 1}"], "l", {"keepdims": 0}))
    inputs = {"x": np.zeros((64, 64), np.float32)}
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(nodes, inputs, ["l"], weights).SerializeToString())
    train = to.Training("output:l", "adamw", micro_batches=micro_batches, recompute="none")
    frontier = to.load(path).frontier(
        4,
        stages=stages,
        schedule=schedule,
        device=EAGER,
        train=train,
        pins=["x=S(0)", "w*=S(0)"],
        epsilon=1.0,
    )
    hiding = 0
    for number, point in enumerate(frontier):
        hidden_of_graphs[:] = []
        point.compile(tmp_path / f"plan{number}")
        plan = json.loads((tmp_path / f"plan{number}" / "plan.json").read_text(encoding="utf-8"))
        graphs = plan["stages"]["graphs"]
        assert len(graphs) == len(hidden_of_graphs)
        runs = [1 if name.startswith("update") else micro_batches for name in graphs]
        found_s = sum(n * own for n, own in zip(runs, hidden_of_graphs, strict=True)) / stages
        assert found_s == pytest.approx(point.hidden_s, rel=1e-6, abs=1e-12), graphs
        assert plan["predicted"]["hidden_s"] == pytest.approx(point.hidden_s)
        hiding += found_s > 0
    assert hiding
