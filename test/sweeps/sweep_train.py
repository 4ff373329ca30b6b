"""Train every small model on many plans, and hold each loss against one device and PyTorch.

    python test/sweeps/sweep_train.py                     5 models, 2 and 4 ranks, 9 plans each, 50
    steps python test/sweeps/sweep_train.py cnn --devices 2 --random 1 --steps 20

Per model and number of ranks: the fastest and the leanest plan, the batch split with the moments
split (`zero 1`) and with all state split (`zero 3`), and random plans. A plan passes where the loss
of every step is within 1e-4, relatively, of the one-device run's and of that of PyTorch with
torch.optim, on the same samples. Also holds the predicted static memory against what the ranks
hold: parameters, gradients, moments, running statistics, and constants as ONNX Runtime folds them;
and feeds each plan back in by its strategies, which must give the same plan.
Prints a table and ends in ``N passed, M failed``; exit status 1 if any plan failed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import numpy as np
from fed_back import changed_entries
from graphs.trained import TRAINED
from train_plans import PLANS, RECIPES, Plan, one_device, plans, trained, write_plan
from train_runs import Run, difference, run_plan
from training_data import batch_size, draw

from tensoropt.compiler.search.frontier.points import recompute_of
from tensoropt.compiler.support.errors import UserError as Refusal
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.job import TrainResult

__all__ = ["TOLERANCE", "Case", "Row", "memory_error", "sweep_case"]

STEPS, TOLERANCE = 50, 1e-4
_BATCHES = 4


class Case:
    """A small model in a folder, with its samples and what PyTorch makes of them."""

    def __init__(self, name: str, folder: Path, steps: int = STEPS) -> None:
        self.name, self.folder, self.steps = name, folder, steps
        self.recipe = RECIPES[name]
        self.path = TRAINED[name].build(name).save(folder, seed=0)
        self.batch = batch_size(self.path)
        self.arrays = draw(self.path, _BATCHES * self.batch)
        self.data = folder / f"{name}.npz"
        np.savez(self.data, **self.arrays)

    def torch(self) -> list[float]:
        """Return PyTorch's losses."""
        import torch
        from torch_models.catalog import torch_model
        from torch_models.steps import train

        torch.set_num_threads(1)
        module = torch_model(TRAINED[self.name], self.path)
        recipe = (self.recipe.optimizer, self.recipe.learning_rate)
        return train(module, self.arrays, self.batch, self.steps, *recipe)

    def one_device(self) -> Run:
        """Return the run of the plan for one device."""
        plan = one_device(self.path, self.recipe)
        return self.run(write_plan(self.path, plan, self.folder / "one"))

    def run(self, directory: Path) -> Run:
        """Train with a plan, on one thread per rank."""
        return run_plan(directory, self.data, self.steps, self.recipe.learning_rate, threads=1)


TABLES_BYTES = 4096
"""Indices that put elements into blocks. A point does not count them: 8 bytes for a row."""


@dataclass
class Row:
    """What happened to the plans of one model on so many ranks."""

    model: str
    devices: int
    plans: int = 0
    passed: int = 0
    worst_one: float = 0.0
    worst_torch: float = 0.0
    memory_error: float = 0.0
    point_error: float = 0.0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


def sweep_case(case: Case, devices: int, names: Sequence[str]) -> Row:
    """Train one model on its plans of ``names``."""
    row, started = Row(case.name, devices), time.perf_counter()
    torch, one = case.torch(), case.one_device().losses
    with tempfile.TemporaryDirectory(prefix="tensoropt-sweep-") as folder:
        for plan in plans(case.path, case.recipe, devices, names):
            row.plans += 1
            try:
                directory = write_plan(case.path, plan, Path(folder))
                _feed_back(case.path, plan, directory)
                run = case.run(directory)
            except (UserError, Refusal) as error:
                row.failures.append(f"{plan.name}: {error}")
            else:
                _judge(row, plan, run, one, torch)
    row.seconds = time.perf_counter() - started
    return row


def _feed_back(path: Path, plan: Plan, directory: Path) -> None:
    """Compile a plan from its own plan.json: raises UserError where anything changes."""
    module = trained(path, plan.recipe, recompute_of(plan.point))
    changed = changed_entries(path, module, directory, plan.request)
    if changed:
        raise UserError(f"fed back: other {', '.join(changed)}")


def _judge(row: Row, plan: Plan, run: Run, one: list[float], torch: list[float]) -> None:
    from_one, from_torch = difference(run.losses, one), difference(run.losses, torch)
    row.worst_one = max(row.worst_one, from_one)
    row.worst_torch = max(row.worst_torch, from_torch)
    row.memory_error = max(row.memory_error, memory_error(run.result))
    row.point_error = max(row.point_error, _off(plan.point.static_bytes, run.result, TABLES_BYTES))
    if max(from_one, from_torch) <= TOLERANCE:
        row.passed += 1
    else:
        row.failures.append(
            f"{plan.name}: {from_one:.1e} from one device, {from_torch:.1e} from torch"
        )


def memory_error(result: TrainResult) -> float:
    """Return by how much, relatively, the predicted static bytes are off what the ranks hold."""
    return _off(sum(result.predicted_bytes.values()), result)


def _off(predicted: float, result: TrainResult, tables_bytes: int = 0) -> float:
    held = sum(result.held_bytes.values())
    return max(0, abs(predicted - held) - tables_bytes) / held


def main() -> int:
    """Print a line per model and number of ranks."""
    given = _parser().parse_args()
    heads = f"{'one device':>11} {'PyTorch':>9} {'memory':>7} {'seconds':>8}"
    print(f"{'model':8} {'ranks':>5} {'passed':>8} {heads}")
    rows = []
    for name in given.models or TRAINED:
        with tempfile.TemporaryDirectory(prefix="tensoropt-sweep-") as folder:
            case = Case(name, Path(folder), given.steps)
            for devices in given.devices:
                names = [*PLANS, *(f"random {seed}" for seed in range(given.random))]
                rows.append(sweep_case(case, devices, names))
                _print(rows[-1])
    passed = sum(row.passed for row in rows)
    failed = sum(row.plans - row.passed for row in rows)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def _print(row: Row) -> None:
    print(
        f"{row.model:8} {row.devices:5} {row.passed:4}/{row.plans:<3} {row.worst_one:11.1e} "
        f"{row.worst_torch:9.1e} {row.memory_error:7.2%} {row.seconds:8.1f}",
        flush=True,
    )
    for failure in row.failures:
        print(f"  FAILED {failure}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", choices=[*TRAINED, []], help="default all")
    parser.add_argument("--devices", type=int, nargs="+", default=[2, 4], help="ranks")
    parser.add_argument("--random", type=int, default=5, help="random plans per model and count")
    parser.add_argument("--steps", type=int, default=STEPS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
