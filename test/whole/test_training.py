"""Small models trained on ranks, beside one device and PyTorch: a sample of `make sweep-train`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from graphs.trained import TRAINED
from sweep_train import TOLERANCE, Case, sweep_case
from train_plans import Plan, extremes, plans, trained, write_plan
from train_runs import difference, run_plan

from tensoropt.compiler.pipeline import driver
from tensoropt.runtime.inspection.summary import collectives_of
from tensoropt.runtime.plan.plan import Plan as WrittenPlan
from tensoropt.runtime.support.collectives import STARTS

STEPS = 8
EAGER = str(Path(__file__).parents[1] / "devices" / "eager.toml")
# Each kind of plan at least once: `make sweep-train` has all of all.
SAMPLE = {
    "cnn": (2, ["random 0"]),
    "gpt2": (2, ["leanest", "zero 3"]),
    "gpt2_packed": (2, ["leanest", "random 0"]),
    "llama": (2, ["fastest"]),
    "vit": (2, ["zero 3"]),
    "lstm": (2, ["random 0"]),
}
assert SAMPLE.keys() == TRAINED.keys()


@pytest.mark.parametrize(("name", "devices", "names"), [(n, *SAMPLE[n]) for n in SAMPLE])
def test_every_loss_is_that_of_one_device_and_of_pytorch(
    name: str, devices: int, names: list[str], tmp_path: Path
) -> None:
    row = sweep_case(Case(name, tmp_path, STEPS), devices, names)
    assert not row.failures
    assert row.plans == row.passed == len(names)
    assert row.memory_error < 0.02
    assert row.point_error < 0.02


@pytest.mark.slow
def test_training_goes_on_with_another_plan_on_fewer_ranks(tmp_path: Path) -> None:
    case = Case("gpt2", tmp_path, STEPS)
    half, checkpoint = case.steps // 2, tmp_path / "checkpoint"
    four, two = (
        write_plan(case.path, plan, tmp_path / str(n))
        for n, which in ((4, "zero 3"), (2, "fastest"))
        for plan in plans(case.path, case.recipe, n, [which])
    )
    rate = case.recipe.learning_rate
    first = run_plan(four, case.data, half, rate, threads=1, checkpoint=str(checkpoint))
    second = run_plan(two, case.data, half, rate, threads=1, resume=str(checkpoint))
    assert first.result.ranks == 4
    assert second.result.step == case.steps
    unbroken = case.one_device().losses
    assert difference(first.losses + second.losses, unbroken) < TOLERANCE


@pytest.mark.slow
def test_collectives_beside_operators_change_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("lstm", tmp_path, STEPS)
    written = {way: _eager(case, way) for way in ("off", "auto")}
    kinds = {way: _kinds(path) for way, path in written.items()}
    assert not kinds["off"] & STARTS.keys()
    assert kinds["auto"] & STARTS.keys()
    monkeypatch.setenv("TENSOROPT_LINK_LATENCY_S", "0.002")  # so that much is under way at once
    rate = case.recipe.learning_rate
    off, auto = (
        run_plan(path, case.data, STEPS, rate, threads=1).losses for path in written.values()
    )
    assert auto == off
    assert difference(auto, case.one_device().losses) < TOLERANCE


def _eager(case: Case, overlap: str) -> Path:
    """Write the plan that splits the batch on 4 ranks, for links that move bytes by themselves."""
    request = replace(extremes(4), search="data-parallel", device=EAGER, overlap=overlap)
    result = driver.frontier(trained(case.path, case.recipe, "none"), request)
    plan = Plan(overlap, case.recipe, request, result, result.points[0])
    return write_plan(case.path, plan, case.folder)


def _kinds(plan: Path) -> set[str]:
    return {one.kind for one in collectives_of(WrittenPlan.read(plan))}
