"""Every schedule on ranks: steps, idle time and memory, predicted and measured.

    python bench/stages/measured.py                     both models, 2 and 4 ranks, all schedules
    python bench/stages/measured.py gpt --ranks 2 --schedules 1f1b zb-h1
    python bench/stages/measured.py --write             the table into docs/benchmarks.md too

Each rank is a stage of one thread. The rates of the description make the predicted step of one rank
as long as the measured one while all cores run such steps; with more ranks than cores, they are
lower. Losses must agree with one device.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.catalog import Model
from graphs.gpt import Gpt
from graphs.llama import Llama
from graphs.trained import LOSS
from linked import write_linked
from sections import markdown_table, write_section
from train_runs import Run, difference, run_plan
from training_data import draw
from turns import busy_note

import tensoropt as to
from tensoropt.compiler.calibrate.machine_load import busy_fraction
from tensoropt.compiler.cost.device import description_text
from tensoropt.compiler.stages.names import SCHEDULES
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.flags import Parser, run_command

MODELS: Mapping[str, Model] = {
    "gpt": Gpt(layers=8, width=256, heads=4, vocabulary=512, sequence=64, batch=1, dtype="float32"),
    "llama": Llama(
        layers=8,
        width=256,
        heads=4,
        groups=2,
        inner=512,
        vocabulary=512,
        sequence=64,
        batch=1,
        dtype="float32",
    ),
}
MICRO_BATCHES, RATE, TOLERANCE = 8, 1e-4, 1e-4
_LAUNCH_S, _LATENCY_S, _BYTES_PER_S = 5e-6, 20e-6, 4e9
_TEXT = """\
## Schedules of stages on ranks, predicted and measured

`python bench/stages/measured.py --write`: training steps of {batches} micro-batches of a sequence
of 64 tokens, on a rank of one thread for each stage; 8 layers of width 256. The description has the
rates of one rank while all cores run. *step* is predicted /
measured, in ms. *idle* is the share of the time in which a stage has no work, by one formula for
both: 1 - (the step of one rank) / (stages x the step). *memory* is the predicted peak of the
fullest process over the measured one. Losses of {steps} steps are within {tolerance:g} of one
device's. Measured times are medians.

Ranks wait longer than predicted, for messages and, with more ranks than cores, for a core; the two
were not told apart.

{table}

{busy}
"""


@dataclass(frozen=True)
class Row:
    """A schedule: its step in seconds and its peak in bytes, as (predicted, measured)."""

    model: str
    ranks: int
    schedule: str
    step_s: tuple[float, float]
    one_s: tuple[float, float]
    peak_bytes: tuple[int, int]

    def cells(self) -> list[str]:
        """Return the cells of the row."""
        step = " / ".join(f"{1e3 * own:.0f}" for own in self.step_s)
        idle = " / ".join(f"{self._idle(number):.0%}" for number in range(2))
        memory = f"{self.peak_bytes[0] / self.peak_bytes[1]:.2f}"
        return [self.model, str(self.ranks), self.schedule, step, idle, memory]

    def _idle(self, number: int) -> float:
        return 1 - self.one_s[number] / (self.ranks * self.step_s[number])


def measure(name: str, given: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Yield the rows of a model. Raises ValueError if losses differ."""
    path = MODELS[name].build(name).save(folder, seed=0)
    data = folder / "data.npz"
    np.savez(data, **draw(path, 4 * MICRO_BATCHES))
    slower, wanted = _slower(path, folder, data, given.steps)
    for ranks in given.ranks:
        crowded = max(1.0, ranks / (os.cpu_count() or 1))
        device = _described(folder / f"device-{ranks}", ranks, slower * crowded)
        one = _compiled(path, folder / f"one-{ranks}", 1, device)
        one_s = one.document["predicted"]["time_s"], crowded * statistics.median(wanted.times_s)
        for schedule in given.schedules:
            plan = _compiled(path, folder / f"{schedule}-{ranks}", ranks, device, schedule)
            run = run_plan(plan.folder, data, given.steps, RATE, threads=1)
            if not difference(run.losses, wanted.losses) < TOLERANCE:
                raise ValueError(f"{plan.folder}: {run.losses} instead of {wanted.losses}")
            result = run.result
            assert result.predicted_peak_bytes is not None
            assert result.peak_bytes is not None
            yield Row(
                name,
                ranks,
                schedule,
                (plan.document["predicted"]["time_s"], statistics.median(run.times_s)),
                one_s,
                (result.predicted_peak_bytes, result.peak_bytes),
            )


def _slower(model: Path, folder: Path, data: Path, steps: int) -> tuple[float, Run]:
    """Return how many times slower than first described one rank computes, and its run.

    Other ranks run at the same time, as stages do: they share caches and memory.
    """
    plan = _compiled(model, folder / "one", 1, _described(folder / "device", 1, 1.0))
    with ThreadPoolExecutor() as pool:
        runs = [
            pool.submit(run_plan, plan.folder, data, steps, RATE, threads=1)
            for _ in range(os.cpu_count() or 1)
        ]
    run = runs[0].result()
    return statistics.median(run.times_s) / plan.document["predicted"]["time_s"], run


def _described(folder: Path, ranks: int, slower: float) -> Path:
    folder.mkdir()
    return write_linked(
        folder,
        ranks,
        slower,
        launch_s=_LAUNCH_S,
        latency_s=_LATENCY_S,
        bytes_per_s=_BYTES_PER_S,
        more=_process(),
    )


def _process() -> str:
    """Return the overhead of a process on CPUs, as the description of `cpu` has it."""
    found = re.search(r"\[process\]\n(?:\w.*\n)*", description_text("cpu"))
    assert found is not None
    return found[0]


def _compiled(model: Path, folder: Path, ranks: int, device: Path, schedule: str = "") -> Plan:
    train = to.Training(LOSS, "adamw", micro_batches=MICRO_BATCHES, recompute="none")
    staged = {"stages": ranks, "schedule": schedule} if schedule else {"stages": 1}
    found = to.load(model).frontier(ranks, device=str(device), train=train, epsilon=1.0, **staged)  # type: ignore[arg-type]
    found.fastest.compile(folder)
    return Plan.load(folder)


def table(rows: Sequence[Row]) -> str:
    """Return the figures in Markdown."""
    head = ["model", "ranks", "schedule", "step", "idle", "memory"]
    return markdown_table(head, "|---|---:|---" + "|---:" * 3 + "|", (row.cells() for row in rows))


def main() -> None:
    """Print a line per plan when its measurement ends, and the table."""
    given = _parser().parse()
    rows, busy = list[Row](), list[float]()
    for name in given.models or MODELS:
        busy.append(busy_fraction(1.0) or 0.0)
        with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
            for row in measure(name, given, Path(folder)):
                print(*row.cells(), file=sys.stderr, flush=True)
                rows.append(row)
    text = table(rows)
    print(text)
    if given.write:
        facts = {"batches": MICRO_BATCHES, "tolerance": TOLERANCE, "steps": given.steps}
        note = busy_note(statistics.fmean(busy))
        write_section("stages_measured", _TEXT.format(table=text, busy=note, **facts))


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], help="default all")
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--schedules", nargs="+", choices=SCHEDULES, default=SCHEDULES)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
