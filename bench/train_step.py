"""Time training steps on ranks of this machine, beside PyTorch's DistributedDataParallel.

    python bench/train_step.py                      ResNet-20 and a GPT-2 of 5 M parameters, 2 ranks
    python bench/train_step.py gpt2 --rounds 5 --steps 30

Three ways to train a model with AdamW, each on one thread per rank: the fastest plan, the plan that
splits the batch, and the same model in PyTorch with gloo. They take turns, ``--rounds`` times, so
that what else the machine does hits all; a turn is the median of its steps but for the first ones,
and the figure is the median of the turns. Batch normalisation here takes the statistics of the
whole batch, in PyTorch (which synchronises them on GPUs only) those of each rank's part.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from graphs.catalog import Model
from graphs.gpt import Gpt
from graphs.residual import Residual
from train_plans import Plan, Recipe, extremes, trained, write_plan
from train_runs import run_plan
from training_data import batch_size, draw

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.search.frontier.points import fastest

__all__ = ["MODELS", "ratios", "time_model"]

MODELS: Mapping[str, Model] = {
    "cnn": Residual(batch=32),
    "gpt2": Gpt(
        layers=6, width=256, heads=8, vocabulary=2048, sequence=64, batch=8, dtype="float32"
    ),
}
_RECIPE = Recipe("adamw", 1e-4)
_WARM_UP = 3

Turn = Callable[[], list[float]]
"""Returns the seconds of its steps."""


def time_model(
    name: str, model: Model, ranks: int, steps: int, rounds: int, folder: Path
) -> dict[str, list[float]]:
    """Return, per way to train, the median seconds of a step in each of its turns."""
    turns = _turns(name, model, ranks, steps, folder)
    medians: dict[str, list[float]] = {way: [] for way in turns}
    for _ in range(rounds):
        for way, turn in turns.items():
            medians[way].append(statistics.median(turn()[_WARM_UP:]))
    return medians


def _turns(name: str, model: Model, ranks: int, steps: int, folder: Path) -> dict[str, Turn]:
    path = model.build(name).save(folder, seed=0)
    data = folder / f"{name}.npz"
    np.savez(data, **draw(path, batch_size(path)))

    def ours(plan: Path) -> Turn:
        return lambda: run_plan(plan, data, steps, _RECIPE.learning_rate, threads=1).times_s

    def torch() -> list[float]:
        from torch_models.parallel import time_steps

        return time_steps(model, path, data, ranks, steps, _RECIPE.optimizer)

    plans = {search: _plan(path, search, ranks, folder) for search in ("ft", "data-parallel")}
    return {"fastest": ours(plans["ft"]), "batch": ours(plans["data-parallel"]), "DDP": torch}


def _plan(path: Path, search: str, ranks: int, folder: Path) -> Path:
    request = replace(extremes(ranks), search=search)
    result = driver.frontier(trained(path, _RECIPE, "none"), request)
    return write_plan(path, Plan(search, _RECIPE, request, result, fastest(result.points)), folder)


def ratios(medians: Mapping[str, list[float]]) -> dict[str, float]:
    """Return the time of DDP over that of every way: above 1 is faster than DDP."""
    middle = {way: statistics.median(turns) for way, turns in medians.items()}
    return {way: middle["DDP"] / seconds for way, seconds in middle.items()}


def main() -> None:
    """Print a line per model and way."""
    given = _parser().parse_args()
    print(f"{'model':6} {'way':8} {'ms per step':>12} {'least':>8} {'most':>8} {'DDP / this':>11}")
    for name in given.models or MODELS:
        with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
            sizes = (given.ranks, given.steps, given.rounds)
            medians = time_model(name, MODELS[name], *sizes, Path(folder))
        for way, ratio in ratios(medians).items():
            held = [1e3 * seconds for seconds in medians[way]]
            spread = f"{min(held):8.1f} {max(held):8.1f}"
            print(f"{name:6} {way:8} {statistics.median(held):12.1f} {spread} {ratio:11.2f}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], help="default all")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20, help="of one turn")
    parser.add_argument("--rounds", type=int, default=5)
    return parser


if __name__ == "__main__":
    main()
