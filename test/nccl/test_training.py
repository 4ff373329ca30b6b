"""Training over the stand-ins: the losses of one device, by the calls that both graphs ask for."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs.trained import TRAINED
from recorded import FULL, check_calls, check_together
from sweep_train import TOLERANCE, Case
from train_plans import PLANS, plans, write_plan
from train_runs import difference, run_plan
from wanted import steps

SAMPLE = [pytest.param("gpt2", 2, ["zero 3"], marks=pytest.mark.quick), ("cnn", 2, ["random 0"])]
ALL = [(name, devices, [*PLANS, "random 0"]) for name in TRAINED for devices in (2, 4)]
STEPS = 4


@pytest.mark.parametrize(("name", "devices", "names"), ALL if FULL else SAMPLE)
def test_losses_are_those_of_one_device(
    name: str, devices: int, names: list[str], log: Path, tmp_path: Path
) -> None:
    case = Case(name, tmp_path, steps=STEPS)
    expected = case.one_device().losses
    for plan in plans(case.path, case.recipe, devices, names):
        folder = write_plan(case.path, plan, tmp_path / "plans")
        here = log / plan.name.replace(" ", "-")
        run = trained(case, folder, here)
        assert difference(run, expected) < TOLERANCE, plan.name
        for rank in range(devices):
            graphs = folder / f"rank{rank}.onnx", folder / f"rank{rank}.update.onnx"
            check_calls(here, rank, [s for graph in graphs for s in steps(graph)] * STEPS)
        check_together(here, devices)


def trained(case: Case, folder: Path, log: Path) -> list[float]:
    log.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSOROPT_NCCL_LOG", str(log))
        rate = case.recipe.learning_rate
        return run_plan(folder, case.data, STEPS, rate, threads=1, provider="cuda").losses
