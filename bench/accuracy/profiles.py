"""Predicted and measured time of steps, before and after tensoropt-profile.

    python bench/accuracy/profiles.py                 1 and 2 ranks of one thread
    python bench/accuracy/profiles.py --ranks 1 4 --rounds 5

Uses plans of light ResNet-50 and SqueezeNet, of a GPT-2 of 3 M parameters, and of its training
step: the fastest on each number of ranks. Each is predicted from three descriptions: ``cpu``, which
comes with tensoropt; ``common``, from tensoropt-profile without a model; and ``own``, with the
models. The steps run in tensoropt-run's own code, in ``--rounds`` turns. Each turn waits at most
``--wait`` seconds for an idle machine. The measured time is the median step of the quietest turn,
and ``spread`` is the median of the slowest turn over it.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import numpy as np
import zoo
from graphs.gpt import Gpt
from graphs.trained import LOSS
from search_graphs import training_spec
from train_runs import run_plan
from training_data import batch_size, draw

from tensoropt.compiler.calibrate.machine_load import busy_fraction
from tensoropt.compiler.calibrate.plans import Model, PlanFiles, prepare_model, write_plans
from tensoropt.compiler.cli.profile import main as profile
from tensoropt.compiler.cost.device import load_device
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.runtime.inference.jobs import run
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.runtime.support.job import Job

__all__ = ["CNNS", "GPT", "Row", "Turns", "measure", "table"]

CNNS = ("resnet50", "squeezenet")
GPT = Gpt(layers=4, width=256, heads=4, vocabulary=512, sequence=64, batch=4, dtype="float32")
_DESCRIPTIONS = ("cpu", "common", "own")
_WARM_UP = 3
_SEARCH_S = 60.0  # of each search
_LOOK_S, _QUIET = 0.3, 0.2  # sampling time of the cores, and their busy share that counts as quiet


@dataclass(frozen=True)
class Turns:
    """Number of turns, number of steps of each, and the longest wait before each."""

    rounds: int
    steps: int
    wait_s: float

    def medians_s(self, run: Callable[[], Sequence[float]]) -> list[float]:
        """Return the median of the steps of each turn."""
        return [self._median_s(run) for _ in range(self.rounds)]

    def _median_s(self, run: Callable[[], Sequence[float]]) -> float:
        end = time.monotonic() + self.wait_s
        while time.monotonic() < end and (busy_fraction(_LOOK_S) or 0.0) > _QUIET:
            pass
        return statistics.median(run())


@dataclass(frozen=True)
class Row:
    """A plan with the measured seconds of its step, and the predictions of each description."""

    plan: str
    ranks: int
    measured_s: float
    spread: float
    predicted_s: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        """Predicted over measured times."""
        return [own / self.measured_s for own in self.predicted_s]


def measure(folder: Path, counts: Sequence[int], turns: Turns, *flags: str) -> list[Row]:
    """Return a row per model and number of ranks; ``flags`` are passed to tensoropt-profile."""
    most = ["--ranks", str(max(counts)), *flags]
    paths = [zoo.provide(name, folder) for name in CNNS]
    gpt = GPT.build("gpt2").save(folder, seed=0)
    step = ["--train", "--loss", LOSS, "--optimizer", "adamw", "--freeze", "constant_*"]
    common = _described(folder / "common.toml", *most)
    own = _described(folder / "own.toml", *map(str, [*paths, gpt]), *most)
    trained = _described(folder / "trained.toml", str(gpt), *step, *most)
    rows = []
    for path in [*paths, gpt]:
        rows += _rows(prepare_model(path, {}), [common, own], folder, counts, turns)
    model = prepare_model(gpt, {}, BuildTrainingStepPass.from_spec(training_spec()))
    return rows + _rows(model, [common, trained], folder, counts, turns)


def _described(path: Path, *flags: str) -> Path:
    with redirect_stdout(sys.stderr):
        if profile([*flags, "-o", str(path)]) != 0:
            raise SystemExit("tensoropt-profile failed")
    return path


def _rows(
    model: Model,
    descriptions: Sequence[Path],
    folder: Path,
    counts: Sequence[int],
    turns: Turns,
) -> list[Row]:
    kind = "" if model.training is None else ", training"
    rows = []
    for count in counts:
        plan = next(
            write_plans(
                model, count, descriptions[-1], folder, {kind}, time.monotonic() + _SEARCH_S
            )
        )
        way = _inference if model.training is None else _training
        medians = turns.medians_s(way(plan, turns.steps))
        predicted = [
            plan.step.time_s(load_device(str(path))) for path in (Path("cpu"), *descriptions)
        ]
        spread = max(medians) / min(medians)
        rows.append(Row(f"{model.path.stem}{kind}", count, min(medians), spread, predicted))
    return rows


def _inference(plan: PlanFiles, steps: int) -> Callable[[], Sequence[float]]:
    job = Job((str(plan.folder),), runs=steps, threads=1)
    return lambda: run(job)[0].step_times_s


def _training(plan: PlanFiles, steps: int) -> Callable[[], Sequence[float]]:
    path = plan.model.path
    data = path.with_suffix(".npz")
    np.savez(data, **draw(path, batch_size(path)))
    return lambda: run_plan(plan.folder, data, steps + _WARM_UP, 1e-4, threads=1).times_s[_WARM_UP:]


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table in Markdown, with the median errors in the last row."""
    lines = ["| plan | ranks | measured | spread | " + " | ".join(_DESCRIPTIONS) + " |"]
    lines.append("|---|---:|---:|---:|" + "---:|" * len(_DESCRIPTIONS))
    for row in rows:
        pairs = zip(row.predicted_s, row.ratios, strict=True)
        cells = [f"{1e3 * time_s:.2f} ms ({ratio:.2f})" for time_s, ratio in pairs]
        start = f"| {row.plan} | {row.ranks} | {1e3 * row.measured_s:.2f} ms | {row.spread:.2f}"
        lines.append(" | ".join([start, *cells]) + " |")
    errors = zip(*([abs(ratio - 1) for ratio in row.ratios] for row in rows), strict=True)
    medians = [
        f"{name} {statistics.median(held):.0%}"
        for name, held in zip(_DESCRIPTIONS, errors, strict=True)
    ]
    return [*lines, "", f"Median error: {', '.join(medians)}."]


def main() -> None:
    """Print the table."""
    given = _parser().parse()
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        flags = ["--quick"] if given.quick else ["--budget", str(given.budget)]
        turns = Turns(given.rounds, given.steps, given.wait)
        rows = measure(Path(folder), given.ranks, turns, *flags)
    print("\n".join(table(rows)))


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--wait", type=float, default=5.0, help="seconds for a quiet machine")
    parser.add_argument("--budget", type=float, default=60.0, help="tensoropt-profile --budget")
    parser.add_argument("--quick", action="store_true", help="tensoropt-profile --quick")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
