"""Policies for a GPU cluster, elastic or not, on a trace of jobs: `make bench-cluster`.

    python bench/cluster                             the synthetic trace of this folder
    python bench/cluster --trace philly.csv.gz       a sample of another
    python bench/cluster --trace FILE --write        into docs/benchmarks.md, with a picture

Every job is given a model, whose speed on 1, 2, 4, ... devices is that of our frontiers
(speedups.csv), and a minimum of devices. The load is the device seconds that jobs ask for, over
those that the cluster has between the first and the last arrival; arrivals are scaled to reach it.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sections import write_section

from cluster import costs
from cluster.profiles import read_profiles
from cluster.report import figures_table, plot, ratio_table, spread_table
from cluster.study import BASE, OURS, POLICIES, Study
from cluster.trace import SYNTHETIC, read_trace, sampled

_PICTURE = Path(__file__).resolve().parents[2] / "docs" / "cluster.svg"
_COMPARED = (BASE, "Elastic-Tiresias", OURS)

_TEXT = """
## A cluster that shares its devices

`make bench-cluster ARGS="--trace {name} --write"`: {jobs} jobs of {whole}, {devices} {device} in
machines of {size}, simulated.

### With a switch of {switch:g} s

{figures}

### By what a switch costs

{ratios}

### Other samples, and other devices

{samples} samples of the trace:

{spread}

{jobs} jobs on {devices} {other}:

{others}
"""


def main() -> int:
    """Print the study; return the exit status."""
    given = _parser().parse_args()
    began = time.perf_counter()
    whole = read_trace(given.trace)
    settings = costs.settings(given.stall, given.stop_resume)

    def study(seed: int, device: str) -> Study:
        jobs = sampled(whole, given.jobs, seed)
        return Study(jobs, read_profiles(device), given.machines, given.size, seed)

    own = study(given.seed, given.device)
    runs = []
    for run in own.runs(list(POLICIES), given.loads, settings):
        runs.append(run)
        print(
            f"{run.policy}, load {run.load:g}, {run.costs}: {run.average_s:.0f} s", file=sys.stderr
        )
    brief = (_COMPARED, given.loads, settings[:1])
    seeds = range(given.seed + 1, given.seed + given.samples)
    samples = [[run for run in runs if run.costs == settings[0].name]]
    samples += [list(study(seed, given.device).runs(*brief)) for seed in seeds]
    other = "h200" if given.device == "gtx1080ti" else "gtx1080ti"
    others = list(study(given.seed, other).runs(*brief))
    text = _TEXT.format(
        name=given.trace.name,
        jobs=len(own.jobs(1.0)),
        whole=len(whole),
        devices=own.devices,
        device=given.device,
        size=given.size,
        switch=given.stall,
        figures=figures_table(runs, settings[0].name),
        ratios=ratio_table(runs, settings),
        samples=given.samples,
        spread=spread_table(samples),
        other=other,
        others=figures_table(others, settings[0].name),
    )
    print(text.strip())
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)
    if given.write:
        write_section("cluster", text)
        plot(runs, settings, _PICTURE)
    return 0


def _loads(text: str) -> list[float]:
    return [float(load) for load in text.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--trace", type=Path, default=SYNTHETIC, metavar="FILE", help="timestamp,duration,num_gpus")
    add("--jobs", type=int, default=10000, help="sampled from the trace, at most")
    add("--seed", type=int, default=1, help="of the sample, and of the models")
    add("--samples", type=int, default=3, help="with as many seeds")
    add("--machines", type=int, default=8)
    add("--size", type=int, default=8, help="devices of a machine")
    add("--device", default="gtx1080ti", choices=["gtx1080ti", "h200"])
    add("--loads", type=_loads, default=[0.5, 0.75, 1.0, 1.5, 2.0], metavar="X,...")
    add("--stall", type=float, default=costs.STALL_S, help="seconds of a switch")
    add("--stop-resume", type=float, default=costs.STOP_RESUME_S, help="seconds of a restart")
    add("--write", action="store_true", help="into docs/benchmarks.md, and docs/cluster.svg")
    return parser


if __name__ == "__main__":
    sys.exit(main())
