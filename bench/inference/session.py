"""Time `Session.run`, compared with steps of the same ranks alone.

    python bench/inference/session.py                 ResNet-50, a BERT and a tiny LSTM, on 2 ranks
    python bench/inference/session.py resnet50 --rounds 20 --runs 50

A round is some runs of the session in sequence, and as many steps of its ranks alone on the same
inputs. They take turns, so that other work on the machine affects both. Printed are the medians of
the rounds, the overhead of a run over a step, the ratio of the two rates with its quartiles, the
processor time of both, which other work prolongs less, and the processor seconds that idle ranks
take per second.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import numpy as np
import zoo

from tensoropt.runtime.pool.session import Session
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.flags import Parser, run_command
from tensoropt.runtime.support.tables import columns

__all__ = ["Row", "drawn", "measure"]

MODELS = ("resnet50", "bert_tiny", "lstm_small")
_IDLE_S = 5.0


@dataclass(frozen=True)
class Row:
    """Seconds of a run and of a step, by round.

    Processor times are of all processes for a run, and of the ranks for a step and an idle second.
    """

    model: str
    runs_s: Sequence[float]
    steps_s: Sequence[float]
    run_cores_s: float
    step_cores_s: float
    idle: float

    @property
    def ratios(self) -> list[float]:
        """The rate of runs over the rate of steps, by round."""
        return [step / run for run, step in zip(self.runs_s, self.steps_s, strict=True)]

    def cells(self) -> list[str]:
        run, step = statistics.median(self.runs_s), statistics.median(self.steps_s)
        low, middle, high = statistics.quantiles(self.ratios, n=4)
        times = [f"{run * 1e3:.3f} ms", f"{step * 1e3:.3f} ms", f"{(run - step) * 1e6:.0f} us"]
        cores = f"{self.run_cores_s * 1e3:.2f} ms", f"{self.step_cores_s * 1e3:.2f} ms"
        ratio = f"{middle:.3f} ({low:.3f} to {high:.3f})"
        return [self.model, *times, ratio, *cores, f"{self.idle:.3f}"]


def measure(name: str, folder: Path, ranks: int, rounds: int, runs: int) -> Row:
    """Return the row of one model; its plan is written to ``folder``."""
    with Session(_planned(name, folder, ranks)) as session:
        inputs = drawn(session)
        session.run(inputs)
        runs_s, steps_s, cores_s = [], [], [0.0, 0.0]
        for _ in range(rounds):
            begin, before = time.perf_counter(), _cores_s(session) + time.process_time()
            for _ in range(runs):
                session.run(inputs)
            runs_s.append((time.perf_counter() - begin) / runs)
            middle = _cores_s(session)
            cores_s[0] += middle + time.process_time() - before
            steps_s.append(statistics.fmean(session.step_times_s(runs)))
            cores_s[1] += _cores_s(session) - middle
        each = [total / rounds / runs for total in cores_s]
        return Row(name, runs_s, steps_s, *each, _idle(session))


def _planned(name: str, folder: Path, ranks: int) -> Path:
    model, plan = zoo.provide(name, folder), folder / f"{name}.plan"
    dims = [f"--dim={key}={size}" for key, size in zoo.DIMS.get(name, {}).items()]
    command = [Path(sys.executable).with_name("tensoropt-opt"), model, "--devices", str(ranks)]
    subprocess.run([*command, *dims, "--pick", "fastest", "-o", plan], check=True)
    return plan


def drawn(session: Session) -> dict[str, Array]:
    """Return random inputs for a session; integers are 0 and 1."""
    random = np.random.default_rng(0)
    return {t.name: _array(random, [int(s) for s in t.shape], t.dtype) for t in session.inputs}


def _array(random: np.random.Generator, shape: list[int], name: str) -> Array:
    dtype = dtype_of(name)
    if dtype.kind in "iub":
        return random.integers(0, 2, shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)


def _idle(session: Session) -> float:
    before = _cores_s(session)
    time.sleep(_IDLE_S)
    return (_cores_s(session) - before) / _IDLE_S


def _cores_s(session: Session) -> float:
    """Return the processor seconds that the ranks have taken."""
    return sum(map(_ticks, session.pids)) / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def main() -> None:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS, help="names of the zoo, or files")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=30)
    args = parser.parse()
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            measure(name, Path(folder), args.ranks, args.rounds, args.runs) for name in args.models
        ]
    head = ["model", "run", "step", "beyond it", "ratio of rates", "cores, run", "step", "idle"]
    print("\n".join(columns([head, *(row.cells() for row in rows)])))


if __name__ == "__main__":
    sys.exit(run_command(main))
