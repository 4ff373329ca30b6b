"""Time runs of plans against one process of ONNX Runtime with a thread for each rank.

    python bench/speed/inference.py                    all models, batches of 1 and 8, 2 ranks
    python bench/speed/inference.py gpt2 --batches 1 --rounds 3
    python bench/speed/inference.py --write            the table into docs/benchmarks.md too

The fastest plan on ranks of one thread, from whole arrays to whole arrays through `Session`, and
ONNX Runtime's `InferenceSession` on the same model take turns (`turns`). A ratio is the median over
the rounds of its time over ours: above 1 we are faster. Memory is the peak resident memory of one
process. The outputs of both must agree.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import numpy as np
from graphs.catalog import Model
from sections import write_section
from training_data import draw
from turns import Turn, busy_note, mean_ratio, ratio_of, take_turns

from speed.contenders import check_outputs, run_by_one, run_by_ranks
from speed.models import SPEED_RUN
from speed.plans import Sizes, planned, speed_parser
from tensoropt.compiler.calibrate.machine_load import busy_fraction
from tensoropt.compiler.pipeline import driver

__all__ = ["Row", "forward_pass", "measure", "table"]

_OURS, _ALONE, _WARM_UP = "ranks", "one process", 2
_TEXT = """## Inference compared with ONNX Runtime

`python bench/speed/inference.py --write`: the fastest plan on {ranks} ranks of one thread, through
`Session`, and one process of ONNX Runtime with {ranks} threads. Its time over ours, the median of
{rounds} neighbouring turns of {steps} runs: above 1 we are faster. Memory is the most that one
process had resident.

{table}

{busy}"""


@dataclass(frozen=True)
class Row:
    """Turns of both contenders on one model, and the peak memory of their largest processes."""

    model: str
    batch: int
    turns: Mapping[str, Sequence[Turn]]
    peaks: Mapping[str, int]

    @property
    def ratio(self) -> float:
        return ratio_of(self.turns[_ALONE], self.turns[_OURS])

    def cells(self) -> list[str]:
        times = (statistics.median(t.step_s for t in self.turns[w]) for w in (_OURS, _ALONE))
        peaks = [f"{self.peaks[way] / 2**20:.0f} MiB" for way in (_OURS, _ALONE)]
        texts = [f"{1e3 * seconds:.1f}" for seconds in times]
        return [self.model, str(self.batch), *texts, f"{self.ratio:.2f}", *peaks]


def forward_pass(path: Path) -> driver.ir.Module:
    """Return the forward pass of the model in a file, ready for a search."""
    module = driver.load(path, {})
    driver.advance(module, "rules")
    return module


def measure(name: str, model: Model, sizes: Sizes, folder: Path) -> Row:
    """Return the row of a model. Raises ValueError if outputs differ."""
    given: Any = model
    path, data = model.build(name).save(folder, seed=0), folder / "data.npz"
    np.savez(data, **draw(path, given.batch))
    plan, ranks = planned(forward_pass, path, "ft", sizes.ranks, folder), sizes.ranks
    ways = {
        _OURS: (partial(run_by_ranks, plan=plan, data=data), 1),
        _ALONE: (partial(run_by_one, model=path, data=data, threads=ranks), 1),
    }
    turns, teams = take_turns(ways, sizes.rounds, sizes.steps, _WARM_UP)
    (ours,), (alone,) = (teams[way].results for way in (_OURS, _ALONE))
    check_outputs(name, ours, alone)
    peaks = {way: team.peak_bytes for way, team in teams.items()}
    return Row(name, given.batch, turns, peaks)


def table(rows: Sequence[Row]) -> str:
    """Return the figures in Markdown, with the means of the ratios in the last rows."""
    head = ["model", "batch", "ours, ms", "one process, ms", "ratio", "memory", "of one process"]
    lines = [f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    lines += [f"| {' | '.join(row.cells())} |" for row in rows]
    for batch in sorted({row.batch for row in rows}):
        mean = mean_ratio([row.ratio for row in rows if row.batch == batch])
        lines.append(f"| geometric mean | {batch} | | | {mean:.2f} | | |")
    return "\n".join(lines)


def main() -> None:
    """Print a line per model and batch as it finishes, and the table."""
    given = _parser().parse_args()
    sizes = Sizes(given.ranks, given.rounds, given.steps)
    rows, busy = list[Row](), list[float]()
    for name in given.models or SPEED_RUN:
        for batch in given.batches:
            busy.append(busy_fraction(1.0) or 0.0)
            model: Any = replace(SPEED_RUN[name], batch=batch)  # type: ignore[type-var]
            with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
                rows.append(measure(name, model, sizes, Path(folder)))
            print(f"| {' | '.join(rows[-1].cells())} |", file=sys.stderr, flush=True)
    text = table(rows)
    print(text)
    if given.write:
        note = busy_note(statistics.fmean(busy))
        section = _TEXT.format(table=text, busy=note, **vars(sizes))
        write_section("speed_inference", section)


def _parser() -> argparse.ArgumentParser:
    parser = speed_parser(__doc__, SPEED_RUN)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    return parser


if __name__ == "__main__":
    main()
