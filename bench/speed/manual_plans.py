"""Time training steps of found plans against manual plans, on the same ranks.

    python bench/speed/manual_plans.py                     all models, 2 ranks
    python bench/speed/manual_plans.py alexnet --rounds 3
    python bench/speed/manual_plans.py --runs              forward passes instead of training steps
    python bench/speed/manual_plans.py --write             the table into docs/benchmarks.md too

The fastest plan and the plans of `--search data-parallel` and `--search expert` take turns
(`turns`). A ratio is the median over the rounds of their time over ours: below 0.98 the search has
lost. A plan with the same graphs as the fastest plan is not measured.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import numpy as np
from graphs.catalog import Model
from sections import write_section
from train_runs import trained_by_turns
from training_data import draw
from turns import Turn, Way, busy_note, ratio_of, take_turns

from speed.contenders import run_by_ranks
from speed.inference import forward_pass
from speed.models import SPEED_SPLIT
from speed.plans import Program, planned, speed_parser
from speed.training import RECIPE, training_step
from tensoropt.compiler.calibrate.machine_load import busy_fraction
from tensoropt.runtime.support.errors import UserError

__all__ = ["Row", "measure", "table"]

_OURS, _HANDMADE, _WARM_UP = "ft", ("data-parallel", "expert"), 2
_TEXT = """## Found plans compared with manual plans

`python bench/speed/manual_plans.py --write`: training steps of the fastest plan on {ranks} ranks
of one thread, and of the plans of two methods: their time over ours, the median of {rounds}
neighbouring turns of {steps} steps. "same": the plan is the fastest plan. A dash: the method
finds no plan.

{table}

{busy}"""


@dataclass(frozen=True)
class Row:
    """Turns of the fastest plan, and of the plans that differ from it."""

    model: str
    plans: Mapping[str, str]
    turns: Mapping[str, Sequence[Turn]]

    def cells(self) -> list[str]:
        ours = 1e3 * statistics.median(turn.step_s for turn in self.turns[_OURS])
        return [self.model, f"{ours:.1f}", *map(self._cell, _HANDMADE)]

    def _cell(self, method: str) -> str:
        if method not in self.turns:
            return self.plans[method]
        return f"{ratio_of(self.turns[method], self.turns[_OURS]):.3f}"


def measure(name: str, model: Model, given: argparse.Namespace, folder: Path) -> Row:
    """Return the row of a model."""
    batch: Any = model
    path, data = model.build(name).save(folder, seed=0), folder / "data.npz"
    np.savez(data, **draw(path, batch.batch))
    way, program = _how(data, runs=given.runs)
    plans = {_OURS: planned(program, path, _OURS, given.ranks, folder)}
    notes = {}
    for method in _HANDMADE:
        try:
            plan = planned(program, path, method, given.ranks, folder)
        except UserError:
            notes[method] = "-"
            continue
        if _graphs(plan) == _graphs(plans[_OURS]):
            notes[method] = "same"
        else:
            plans[method] = plan
    ranks = 1 if given.runs else given.ranks
    ways = {method: (way(plan), ranks) for method, plan in plans.items()}
    turns, _ = take_turns(ways, given.rounds, given.steps, _WARM_UP)
    return Row(name, notes, turns)


def _how(data: Path, *, runs: bool) -> tuple[Callable[[Path], Way], Program]:
    """Return a function from a plan to a way, and the program to plan."""
    if runs:
        return lambda plan: partial(run_by_ranks, plan=plan, data=data), forward_pass
    given = {"data": data, "learning_rate": RECIPE.learning_rate}
    return lambda plan: partial(trained_by_turns, directory=plan, **given), training_step


def _graphs(plan: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(plan.glob("*.onnx"))]


def table(rows: Sequence[Row]) -> str:
    """Return the figures in Markdown."""
    head = ["model", "ours, ms", *_HANDMADE]
    lines = [f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row.cells())} |" for row in rows)])


def main() -> None:
    """Print a line per model as it finishes, and the table."""
    given = _parser().parse_args()
    rows, busy = list[Row](), list[float]()
    for name in given.models or SPEED_SPLIT:
        busy.append(busy_fraction(1.0) or 0.0)
        with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
            rows.append(measure(name, SPEED_SPLIT[name], given, Path(folder)))
        print(f"| {' | '.join(rows[-1].cells())} |", file=sys.stderr, flush=True)
    text = table(rows)
    print(text)
    if given.write:
        note = busy_note(statistics.fmean(busy))
        write_section("speed_methods", _TEXT.format(table=text, busy=note, **vars(given)))


def _parser() -> argparse.ArgumentParser:
    parser = speed_parser(__doc__, SPEED_SPLIT)
    parser.add_argument("--runs", action="store_true", help="forward passes")
    return parser


if __name__ == "__main__":
    main()
