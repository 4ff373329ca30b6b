"""Small models trained on ranks, beside one device and PyTorch: a sample of `make sweep-train`."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs.trained import TRAINED
from sweep_train import TOLERANCE, Case, sweep_case
from train_plans import plans, write_plan
from train_runs import difference, run_plan

STEPS = 8
# Each kind of plan at least once: `make sweep-train` has all of all.
SAMPLE = {
    "cnn": (2, ["random 0"]),
    "gpt2": (2, ["leanest", "zero 3"]),
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
