"""Compare policies for a GPU cluster, elastic or not, on a trace of jobs: `make bench-cluster`.

    python bench/cluster                             the synthetic trace of this folder
    python bench/cluster --trace philly.csv.gz       a sample of another trace
    python bench/cluster --trace FILE --write        into docs/benchmarks.md, with a picture

Every job is assigned a model, with its speed on 1, 2, 4, ... devices by our frontiers
(speedups.csv), and a minimum number of devices. The load is the device seconds that jobs request,
over the device seconds of the cluster between the first and the last arrival; arrivals are scaled
to reach it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sections import write_section

from cluster import costs
from cluster.profiles import read_profiles
from cluster.report import figures_table, growth_table, plot, ratio_table, spread_table
from cluster.study import BASE, OURS, POLICIES, Figures, Study
from cluster.trace import SYNTHETIC, Submission, read_trace, sampled
from tensoropt.runtime.support.flags import Parser, run_command

_PICTURE = Path(__file__).resolve().parents[2] / "docs" / "cluster.svg"
_COMPARED = (BASE, "Elastic-Tiresias", OURS)
_GROWTH = (4, 2, 1)
_DEVICES = ("gtx1080ti", "h200")

_TEXT = """
## A cluster that shares its devices

`make bench-cluster ARGS="{flags}"`: {jobs} jobs, sampled by a seed
from the {whole} of {name}, on {devices} {device} in machines of {size}, in a simulation.

![Average completion times over Tiresias' by load, and all times at one load](cluster.svg)

A switch costs {switch:g} s, a restart {resume:g} s:

{figures}

Average times over Tiresias' at the same load and the same costs:

{ratios}

The same at the first costs, if a job may not grow beyond a multiple of its request:

{growth}

Average times over Tiresias' for {samples} samples of the trace, the least and the largest:

{spread}

The jobs of the first sample on {devices} {other} (other models and batches, so other speeds and
minima):

{others}
"""


_BRIEF = """
`make bench-cluster ARGS="{flags}"`: the first table for {jobs} jobs.

{figures}
"""


def main() -> int:
    """Print the study; return the exit status."""
    given = _parser().parse()
    whole = read_trace(given.trace)
    flags = " ".join(Path(flag).name for flag in sys.argv[1:])
    settings = costs.settings(given.stall, given.stop_resume)
    if given.brief:
        study = _study(given, whole, given.seed)
        runs = _report_runs(study.runs(_COMPARED, given.loads, settings[:1]))
        figures = figures_table(runs, settings[0].name)
        text = _BRIEF.format(flags=flags, jobs=len(runs[0].times_s), figures=figures)
        return _write_text(text, "cluster_brief", write=given.write)
    runs = _report_runs(
        _study(given, whole, given.seed).runs(list(POLICIES), given.loads, settings)
    )
    if given.write:
        plot(runs, settings, _PICTURE)
    text = _TEXT.format(
        flags=flags,
        name=given.trace.name,
        whole=len(whole),
        jobs=len(runs[0].times_s),
        devices=given.machines * given.size,
        switch=given.stall,
        resume=given.stop_resume,
        figures=figures_table(runs, settings[0].name),
        ratios=ratio_table(runs, settings),
        **_others(given, whole, runs, settings),
        **{name: getattr(given, name) for name in ("device", "size", "samples")},
    )
    return _write_text(text, "cluster", write=given.write)


def _write_text(text: str, section: str, *, write: bool) -> int:
    print(text.strip())
    if write:
        write_section(section, text)
    return 0


def _others(
    given: argparse.Namespace,
    whole: Sequence[Submission],
    runs: Sequence[Figures],
    settings: Sequence[costs.Costs],
) -> dict[str, str]:
    """Return the tables of other limits of growth, samples and devices, at the first costs."""
    brief = (_COMPARED, given.loads, settings[:1])
    first = [run for run in runs if run.costs == settings[0].name and run.policy in _COMPARED]
    growth: dict[int | None, Sequence[Figures]] = {None: first}
    for limit in _GROWTH:
        growth[limit] = _report_runs(_study(given, whole, given.seed, grow=limit).runs(*brief))
    samples = [first]
    for seed in range(given.seed + 1, given.seed + given.samples):
        samples.append(_report_runs(_study(given, whole, seed).runs(*brief)))
    other = _DEVICES[given.device == _DEVICES[0]]
    others = _report_runs(_study(given, whole, given.seed, other).runs(*brief))
    return {
        "growth": growth_table(growth),
        "spread": spread_table(samples),
        "other": other,
        "others": figures_table(others, settings[0].name),
    }


def _study(
    given: argparse.Namespace,
    whole: Sequence[Submission],
    seed: int,
    device: str | None = None,
    grow: int | None = None,
) -> Study:
    jobs, profiles = sampled(whole, given.jobs, seed), read_profiles(device or given.device)
    return Study(jobs, profiles, given.machines, given.size, seed, grow)


def _report_runs(runs: Iterable[Figures]) -> list[Figures]:
    """Return runs as a list, with a progress line for each."""
    held = []
    for run in runs:
        held.append(run)
        line = f"{run.policy}, load {run.load:g}, costs {run.costs}: {run.average_s:.0f} s"
        print(line, file=sys.stderr, flush=True)
    return held


def _loads(text: str) -> list[float]:
    return [float(load) for load in text.split(",")]


def _parser() -> Parser:
    parser = Parser(prog="cluster", description=__doc__)
    add = parser.add_argument
    add("--trace", type=Path, default=SYNTHETIC, metavar="FILE", help="timestamp,duration,num_gpus")
    add("--jobs", type=int, default=3000, help="largest number of jobs sampled from the trace")
    add("--seed", type=int, default=1, help="seed of the sample, and of the models")
    add("--samples", type=int, default=3, help="number of samples, each with its own seed")
    add("--machines", type=int, default=8)
    add("--size", type=int, default=8, help="devices per machine")
    add("--device", default=_DEVICES[0], choices=_DEVICES)
    add("--loads", type=_loads, default=[0.5, 0.75, 1.0, 1.5, 2.0], metavar="X,...")
    add("--stall", type=float, default=costs.STALL_S, help="seconds of a switch")
    add("--stop-resume", type=float, default=costs.STOP_RESUME_S, help="seconds of a restart")
    add("--brief", action="store_true", help="only three policies, with the first costs")
    add("--write", action="store_true", help="into docs/benchmarks.md, and docs/cluster.svg")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
