"""Traces of clusters: arrival, number of devices and duration of jobs.

    python bench/cluster/trace.py --jobs 2000 --seed 1 -o bench/cluster/synthetic.csv.gz

writes the synthetic trace of this repository, modelled after Philly's (Jeon et al., USENIX ATC
2019): lognormal times, so that few jobs have most of the time, and mostly single devices.
"""

from __future__ import annotations

import csv
import gzip
import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["SYNTHETIC", "Submission", "read_trace", "sampled", "synthesised", "write_trace"]

SYNTHETIC = Path(__file__).parent / "synthetic.csv.gz"

_DAY_S = 86400.0
_EPOCH = datetime(2017, 8, 1)
_DEVICES = {1: 0.80, 2: 0.05, 4: 0.07, 8: 0.06, 16: 0.015, 32: 0.005}


@dataclass(frozen=True)
class Submission:
    """A job of a trace, with its time on the requested devices."""

    arrival_s: float
    duration_s: float
    devices: int


def read_trace(path: Path) -> list[Submission]:
    """Return the jobs of a CSV file, optionally packed by gzip, by arrival.

    Its columns are ``timestamp`` (ISO 8601), ``duration`` (seconds) and ``num_gpus``; others are
    ignored. Raises ValueError with the line of an invalid job.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file)
        jobs = [_submission(path, number, line) for number, line in enumerate(lines, 2)]
    if len(jobs) < 2:
        raise ValueError(f"{path}: expected two jobs or more, got: {len(jobs)}")
    return sorted(jobs, key=lambda job: job.arrival_s)


def _submission(path: Path, number: int, line: dict[str, str]) -> Submission:
    try:
        at = datetime.fromisoformat(line["timestamp"]) - _EPOCH
        job = Submission(at.total_seconds(), float(line["duration"]), int(line["num_gpus"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}:{number}: expected timestamp, duration and num_gpus, got: {error}"
        ) from error
    if job.duration_s <= 0 or job.devices <= 0:
        raise ValueError(f"{path}:{number}: expected a positive duration and num_gpus")
    return job


def sampled(trace: Sequence[Submission], count: int, seed: int) -> list[Submission]:
    """Return a uniform sample of ``count`` jobs of a trace, in their order."""
    if count >= len(trace):
        return list(trace)
    chosen = random.Random(seed).sample(range(len(trace)), count)
    return [trace[index] for index in sorted(chosen)]


def synthesised(count: int, seed: int) -> list[Submission]:
    """Return a synthetic trace of ``count`` jobs that arrive within thirty days."""
    draw = random.Random(seed)
    arrivals = sorted(draw.uniform(0, 30 * _DAY_S) for _ in range(count))
    return [
        Submission(
            round(at),
            max(1.0, round(min(draw.lognormvariate(7.0, 2.0), 20 * _DAY_S))),
            draw.choices(list(_DEVICES), list(_DEVICES.values()))[0],
        )
        for at in arrivals
    ]


def write_trace(jobs: Iterable[Submission], path: Path) -> None:
    """Write jobs in the format of `read_trace`; the output is deterministic."""
    lines = [f"{_EPOCH + timedelta(seconds=j.arrival_s)},{j.duration_s},{j.devices}" for j in jobs]
    text = "\n".join(["timestamp,duration,num_gpus", *lines, ""])
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def main() -> None:
    """Write a synthetic trace."""
    parser = Parser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, default=SYNTHETIC)
    given = parser.parse()
    write_trace(synthesised(given.jobs, given.seed), given.output)


if __name__ == "__main__":
    sys.exit(run_command(main))
