"""Streams of inputs through stages, next to the plans of least latency, on a slow link.

    python bench/stages/inference.py                    both models, 2 and 4 ranks, two links
    python bench/stages/inference.py bert --ranks 2 --links 2e7
    python bench/stages/inference.py --write            the table into docs/benchmarks.md too

Each model gets two plans: the fastest of `--objective time` and of `--objective throughput`. The
library simulates the link, of collectives and of messages between stages. The rates of the
description make the predicted step of one rank as long as the measured one. With more ranks than
cores, they are lower. Runs of both plans take turns, and their outputs must agree with one device.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.bert import Bert
from graphs.catalog import Model
from graphs.gpt import Gpt
from linked import environment_of_link, write_linked
from sections import markdown_table, write_section
from turns import busy_note

import tensoropt as to
from tensoropt.compiler.calibrate.machine_load import busy_fraction
from tensoropt.runtime.inference.jobs import check_plan
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.flags import Parser, run_command

MODELS: Mapping[str, Model] = {
    "bert": Bert(
        layers=8, width=256, heads=4, vocabulary=512, sequence=128, batch=1, dtype="float32"
    ),
    "gpt": Gpt(
        layers=8, width=256, heads=4, vocabulary=512, sequence=128, batch=1, dtype="float32"
    ),
}
"""Models with small layers, so that links matter on cores too."""

OBJECTIVES = ("time", "throughput")
_LATENCY_S, _LAUNCH_S = 20e-6, 5e-6
_TEXT = """\
## Streams through stages, next to plans of least latency

`python bench/stages/inference.py --write` (`make bench-streams`): inference of small models with
one input of 128 tokens, on ranks of one thread and a simulated link. *latency* is the time from an
input to its result, *interval* the time between results while inputs follow each other, in ms, as
predicted / measured. Measured figures are the median of {rounds} turns, each the median of {runs}
runs. *results* are measured results per second, as a multiple of the plan of least latency.

{table}

{busy}
"""


@dataclass(frozen=True)
class Row:
    """A plan, its predictions, and its measured latency and interval."""

    model: str
    ranks: int
    bytes_per_s: float
    objective: str
    stages: int
    predicted_s: tuple[float, float]
    measured_s: tuple[float, float]

    def cells(self, interval_s: float) -> list[str]:
        """Return the cells of the row; ``interval_s`` is measured without stages."""
        pairs = zip(self.predicted_s, self.measured_s, strict=True)
        times = [f"{1e3 * one:.1f} / {1e3 * other:.1f}" for one, other in pairs]
        link = f"{self.bytes_per_s / 1e6:g} MB/s"
        gain = f"{interval_s / self.measured_s[1]:.2f}"
        return [self.model, str(self.ranks), link, self.objective, str(self.stages), *times, gain]


def measure(name: str, given: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Yield the rows of a model."""
    path = MODELS[name].build(name).save(folder, seed=0)
    slower = _slower(path, folder, given.runs)
    for ranks in given.ranks:
        for number, link in enumerate(given.links):
            own = folder / f"{ranks}-{number}"
            own.mkdir()
            crowded = max(1.0, ranks / (os.cpu_count() or 1))
            device = _described(own, ranks, slower * crowded, link)
            plans = {each: _compiled(path, own / each, ranks, device, each) for each in OBJECTIVES}
            os.environ.update(environment_of_link(_LATENCY_S, link))
            times: dict[str, list[tuple[float, float]]] = {each: [] for each in OBJECTIVES}
            for _ in range(given.rounds):
                for each, plan in plans.items():
                    times[each].append(_times(plan, path, given.runs))
            for each, plan in plans.items():
                predicted = plan.document["predicted"]
                yield Row(
                    name,
                    ranks,
                    link,
                    each,
                    plan.stages,
                    (
                        predicted.get("latency_s", predicted["time_s"]),
                        predicted.get("interval_s", predicted["time_s"]),
                    ),
                    tuple(map(statistics.median, zip(*times[each], strict=True))),  # type: ignore[arg-type]
                )


def _times(plan: Plan, model: Path, runs: int) -> tuple[float, float]:
    """Return the measured latency and interval. Raises ValueError if an output is wrong."""
    found = check_plan(plan.folder, model, runs=runs, threads=1)
    if not found.passed:
        raise ValueError(f"{plan.folder}: {found.error or found.outputs}")
    latency_s = statistics.median(found.step_times_s)
    return latency_s, found.interval_s or latency_s


def _slower(model: Path, folder: Path, runs: int) -> float:
    """Return how many times slower than first described one rank computes."""
    own = folder / "one"
    own.mkdir()
    plan = _compiled(model, own / "plan", 1, _described(own, 1, 1.0, 1e9), "time")
    latency_s, _ = _times(plan, model, runs)
    return latency_s / plan.document["predicted"]["time_s"]


def _described(folder: Path, ranks: int, slower: float, bytes_per_s: float) -> Path:
    return write_linked(
        folder,
        ranks,
        slower,
        launch_s=_LAUNCH_S,
        latency_s=_LATENCY_S,
        bytes_per_s=bytes_per_s,
    )


def _compiled(model: Path, folder: Path, ranks: int, device: Path, objective: str) -> Plan:
    found = to.load(model).frontier(ranks, device=str(device), objective=objective, epsilon=0.05)
    found.fastest.compile(folder)
    return Plan.load(folder)


def table(rows: Sequence[Row]) -> str:
    """Return the figures in Markdown."""
    plain = {(r.model, r.ranks, r.bytes_per_s): r.measured_s[1] for r in rows if r.stages == 1}
    head = ["model", "ranks", "link", "objective", "stages", "latency", "interval", "results"]
    cells = (row.cells(plain[row.model, row.ranks, row.bytes_per_s]) for row in rows)
    return markdown_table(head, "|---|---:|---|---" + "|---:" * 4 + "|", cells)


def main() -> None:
    """Print a line per plan when its measurement ends, and the table."""
    given = _parser().parse()
    rows, busy = list[Row](), list[float]()
    for name in given.models or MODELS:
        busy.append(busy_fraction(1.0) or 0.0)
        with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
            for row in measure(name, given, Path(folder)):
                print(row, file=sys.stderr, flush=True)
                rows.append(row)
    text = table(rows)
    print(text)
    if given.write:
        note = busy_note(statistics.fmean(busy))
        write_section("stages_inference", _TEXT.format(table=text, busy=note, **vars(given)))


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], help="default all")
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--links", nargs="+", type=float, default=[2e7, 5e6], help="bytes per s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=20, help="of one turn")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
