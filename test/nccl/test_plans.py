"""Plans of real models over the stand-ins: right results, by the calls that the graphs ask for."""

from __future__ import annotations

from pathlib import Path

import pytest
import zoo
from compiled import compiled
from graphs.llama import Llama
from graphs.small import SMALL
from recorded import FULL, check_calls, check_together
from stand_ins import communication
from wanted import steps

from tensoropt.compiler.cli.opt import main
from tensoropt.runtime.inference.jobs import check_plans

SAMPLE = [
    pytest.param("squeezenet", 2, marks=pytest.mark.quick),
    ("gpt2_tiny", 4),
    ("mixture_small", 4),
]
MODELS = [*zoo.TRANSFORMERS, *SMALL, "squeezenet", "shufflenet", "resnet50"]
ALL = [(name, devices) for name in MODELS for devices in (2, 4)]
RUNS = 2  # after the first


@pytest.mark.parametrize(("name", "devices"), ALL if FULL else SAMPLE)
def test_plans_agree_with_one_device_and_with_their_graphs(
    name: str, devices: int, log: Path, tmp_path: Path
) -> None:
    path = zoo.provide(name, tmp_path)
    plans = compiled(path, devices, 3 if FULL else 1, tmp_path / "plans")
    results = check_plans(plans, path, provider="cuda", runs=RUNS, int_range=(0, 200))
    assert [(r.plan, r.error) for r in results if not r.passed] == []
    ranks = [[steps(plan / f"rank{rank}.onnx") for plan in plans] for rank in range(devices)]
    for rank, wanted in enumerate(ranks):
        check_calls(log, rank, [step for plan in wanted for step in plan * (1 + RUNS)])
    check_together(log, devices)


def test_mixtures_send_any_number_of_rows(log: Path, tmp_path: Path) -> None:
    sizes = {"layers": 1, "width": 32, "heads": 4, "groups": 2, "inner": 48, "vocabulary": 64}
    routed = {"experts": 4, "choices": 2, "sequence": 8, "batch": 4}
    model = Llama(**sizes, **routed, dtype="float32").build("routed").save(tmp_path, seed=0)
    sent = "node:*mixture=[S(0)] [S(0)] [S(0)] * [S(0)] -> [S(0)]"
    plan = tmp_path / "plan"
    assert main([str(model), "--mesh", "4", "--pin", sent, "-o", str(plan)]) == 0
    [result] = check_plans([plan], model, provider="cuda", runs=RUNS, int_range=(0, 64))
    assert (result.passed, result.error) == (True, None)
    for rank in range(4):
        counts = {c["count"] for c in communication(log, rank) if c["call"] == "ncclSend"}
        assert len(counts) > 1 and all(count % 32 == 0 for count in counts)
