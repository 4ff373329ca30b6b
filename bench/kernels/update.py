"""The update of all parameters by AdamW, compared with PyTorch's fused update, on one thread.

    python bench/kernels/update.py

The model is a GPT-2 of 4.2 M float32 parameters on one rank. Both updates take turns. Printed are
the medians of processor time per parameter, and of the ratios of neighbouring turns; *predicted* is
the time of our update by the description `cpu`.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import numpy as np
import torch
from graphs.runnable import TRAINED
from search_graphs import training_spec

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.planning.request import Request
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.state import Held
from tensoropt.runtime.training.step import TrainingStep

Call = Callable[[], Any]

_RUNS, _WARM_UP = 21, 3


def prepared_plan(folder: Path) -> tuple[TrainingPlan, float]:
    """Write a training plan for one rank; return it and the predicted seconds of its update."""
    model = TRAINED["gpt2"].build("gpt2").save(folder, seed=0)
    module = driver.load(model, {}, training=True)
    driver.run_phase(module, "prepare", training=True)
    driver.train(module, BuildTrainingStepPass.from_spec(training_spec()))
    request = Request(1)
    result = driver.frontier(module, request)
    driver.settle(module, result.points[0], request, result)
    driver.compile_plan(module, model, folder / "plan")
    return TrainingPlan.from_plan(Plan.load(folder / "plan")), result.points[0].cost.update_s


def ours(plan: TrainingPlan) -> tuple[Call, list[Array]]:
    """Return the update on arrays of random values, and the parameters among them."""
    held = Held(plan, 0)
    step = TrainingStep(plan, held, threads=1)
    for array in (*held.state.values(), *held.gradients.values(), *step.scalars.values()):
        fill(array.get())
    own = [held.state[state.name] for state in plan.state if state.kind == "parameter"]
    return step.update.run, [array.get() for array in own]


def fill(array: Array) -> None:
    array[...] = np.random.default_rng(0).uniform(0.001, 0.01, array.shape)


def torchs(parameters: Sequence[Array]) -> Call:
    """Return PyTorch's update of parameters of the same shapes and values."""
    copies = [torch.nn.Parameter(torch.from_numpy(array.copy())) for array in parameters]
    for parameter in copies:
        parameter.grad = parameter.detach().clone()
    return torch.optim.AdamW(copies, weight_decay=0.0, fused=True).step


def taken_s(call: Call) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        plan, predicted_s = prepared_plan(Path(folder))
        own, parameters = ours(plan)
    calls = (own, torchs(parameters))
    turns = [tuple(map(taken_s, calls)) for _ in range(_WARM_UP + _RUNS)][_WARM_UP:]
    count = sum(array.size for array in parameters)
    for name, times in zip(("ours", "PyTorch"), zip(*turns, strict=True), strict=True):
        print(f"{name}: {statistics.median(times) / count * 1e9:.2f} ns a parameter")
    print(f"predicted: {predicted_s / count * 1e9:.2f} ns a parameter")
    print(f"ours over PyTorch: {statistics.median(a / b for a, b in turns):.2f}")


if __name__ == "__main__":
    main()
