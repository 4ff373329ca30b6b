"""Measure tensoropt-serve under load, and its ranks alone, in turns: rates, latencies, processors.

    python bench/inference/server.py                    ResNet-50 and a BERT on 2 ranks, 1,024
                                                        requests
    python bench/inference/server.py resnet50 --grpc    one of them, over gRPC
    python bench/inference/server.py bert --kill        a rank is killed while requests are pending

A round is some steps of the plan's ranks alone, at full batches, and then some of the requests,
from clients that send one sample at a time. They take turns, so that other work on the machine
affects both; the idle side sleeps. Every answer is compared with a run of the plan. On one machine
the server and the clients take processor time from the ranks; the amount is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import numpy as np
from graphs.bert import Bert
from graphs.catalog import Model
from graphs.resnet import ResNet

from inference.server_load import Load
from tensoropt.runtime.pool.session import Session
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["Round", "measure"]

_BIN = Path(sys.executable).parent
_SERVING = re.compile(r"serving at http://127\.0\.0\.1:(\d+) and grpc://127\.0\.0\.1:(\d+)")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_MODELS: dict[str, Model] = {
    "resnet50": ResNet(layers=50),
    "bert": Bert(layers=6, width=512, heads=8, sequence=128, vocabulary=2048),
}


@dataclass(frozen=True)
class Round:
    """Samples per second of the ranks alone and of the server; shares of one processor."""

    alone: float
    served: float
    server_share: float
    clients_share: float
    ranks_share: float
    load: Load

    @property
    def ratio(self) -> float:
        """The server's rate relative to the ranks alone."""
        return self.served / self.alone


@dataclass(frozen=True)
class _Served:
    plan: Path
    process: subprocess.Popen[str]
    http: int
    grpc: int

    def ranks(self) -> list[int]:
        """Return the processes of the ranks."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                line = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if parent == self.process.pid and b"launch.rank" in line:
                found.append(int(folder.name))
        return found


def _cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _planned(name: str, folder: Path, batch: int) -> Path:
    """Build the model and its plan for 2 ranks, once per folder."""
    plan = folder / f"{name}-{batch}"
    if not plan.exists():
        model = replace(_MODELS[name], batch=batch).build(name).save(folder, seed=1)  # type: ignore[type-var]
        command = [_BIN / "tensoropt-opt", model, "--devices", "2", "--pick", "fastest", "-o", plan]
        subprocess.run(command, check=True)
    return plan


def _reference(session: Session, path: Path) -> None:
    """Write a batch of inputs, with the outputs of the plan's ranks."""
    random = np.random.default_rng(5)
    inputs = {
        tensor.name: random.standard_normal(tensor.shape, np.float32)
        if tensor.dtype == "float32"
        else random.integers(0, 2, tensor.shape).astype(tensor.dtype)  # there are two segments
        for tensor in session.inputs
    }
    outputs = session.run(inputs)
    np.savez(path, **inputs, **{f"out:{name}": array for name, array in outputs.items()})


@contextmanager
def _serving(plan: Path, flags: Sequence[str]) -> Iterator[_Served]:
    command = [_BIN / "tensoropt-serve", f"m={plan}", "--port", "0", "--grpc-port", "0", *flags]
    command.append("--no-access-log")  # nothing reads the pipe, which would fill up
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = next(line for line in process.stderr if _SERVING.match(line))
        match = _SERVING.match(line)
        assert match is not None
        yield _Served(plan, process, int(match[1]), int(match[2]))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, "the server's exit status"
    finally:
        process.kill()
        process.communicate()


def _load(served: _Served, inputs: Path, arguments: argparse.Namespace, requests: int) -> Any:
    port = served.grpc if arguments.grpc else served.http
    command = [
        *(sys.executable, Path(__file__).with_name("server_load.py"), str(port), "m"),
        *("--inputs", inputs, "--requests", str(requests), "--clients", str(arguments.clients)),
        *(["--grpc"] if arguments.grpc else []),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def measure(name: str, folder: Path, arguments: argparse.Namespace) -> list[Round]:
    """Return the rounds of one model."""
    plan, inputs = _planned(name, folder, arguments.batch), folder / f"{name}.npz"
    with Session(plan) as session, _serving(plan, arguments.flags.split()) as served:
        _reference(session, inputs)
        _loaded(served, inputs, arguments, 2 * arguments.batch)  # first runs are slower
        rounds = [_round(session, served, inputs, arguments) for _ in range(arguments.rounds)]
        print(f"{name}: {_batches(served)}", flush=True)
    return rounds


def _round(session: Session, served: _Served, inputs: Path, arguments: argparse.Namespace) -> Round:
    step_s = statistics.fmean(session.step_times_s(arguments.runs))
    processes = (served.process.pid, *served.ranks())
    before = [_cpu_s(process) for process in processes]
    load = _loaded(served, inputs, arguments, arguments.requests // arguments.rounds)
    used = [_cpu_s(process) - was for process, was in zip(processes, before, strict=True)]
    return Round(
        alone=arguments.batch / step_s,
        served=_rate(load, arguments.clients),
        server_share=used[0] / load.seconds,
        clients_share=load.cpu_s / load.seconds,
        ranks_share=sum(used[1:]) / load.seconds,
        load=load,
    )


def _rate(load: Load, clients: int) -> float:
    """Return answers per second, without the first and last, when some clients are idle."""
    times = sorted(load.answered_at)[clients - 1 : len(load.answered_at) - clients]
    return (len(times) - 1) / (times[-1] - times[0])


def _loaded(served: _Served, inputs: Path, arguments: argparse.Namespace, requests: int) -> Load:
    text, _ = _load(served, inputs, arguments, requests).communicate()
    return Load(**json.loads(text))


def _batches(served: _Served) -> str:
    """Return the mean batch of the server's runs and their time, from its metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{served.http}/metrics") as answer:
        text = answer.read().decode()
    facts = dict(re.findall(r"^(\w+)\{[^}]*\} (\S+)$", text, re.MULTILINE))
    samples = float(facts["tensoropt_batch_samples_sum"])
    runs = float(facts["tensoropt_batch_samples_count"])
    step = float(facts["tensoropt_step_seconds_sum"]) / float(facts["tensoropt_step_seconds_count"])
    return f"{runs:.0f} runs of {samples / runs:.2f} samples, {step * 1e3:.1f} ms each"


def kill(name: str, folder: Path, arguments: argparse.Namespace) -> str:
    """Kill a rank while requests are pending; return a summary of the answers and errors."""
    plan, inputs = _planned(name, folder, arguments.batch), folder / f"{name}.npz"
    with Session(plan) as session:
        _reference(session, inputs)
    with _serving(plan, arguments.flags.split()) as served:
        running = _load(served, inputs, arguments, arguments.requests)
        time.sleep(arguments.kill_after)
        killed_at = time.time()
        os.kill(served.ranks()[0], signal.SIGKILL)
        text, _ = running.communicate()
    load = Load(**json.loads(text))
    next_at = min(at for at in load.answered_at if at > killed_at + 0.05)
    first_error = min((at for at, _ in load.errors), default=killed_at)
    next_after_error = min(at for at in load.answered_at if at > first_error)
    texts = "; ".join(sorted({text for _, text in load.errors}))
    return (
        f"{name}: {len(load.latencies_s)} answers, {load.wrong} wrong, {len(load.errors)} errors "
        f"({texts}); errors {first_error - killed_at:.2f} s after the kill, next answer after "
        f"{min(next_after_error, next_at + 1e9) - killed_at:.2f} s"
    )


def _text(name: str, rounds: Sequence[Round]) -> str:
    latencies = sorted(time_s for one in rounds for time_s in one.load.latencies_s)
    errors = [text for one in rounds for _, text in one.load.errors]
    lines = [
        f"{name}: {len(latencies)} answers, {len(errors)} errors, "
        f"{sum(one.load.wrong for one in rounds)} wrong",
        f"  latency p50 {statistics.median(latencies) * 1e3:.0f} ms, "
        f"p99 {latencies[int(0.99 * len(latencies))] * 1e3:.0f} ms",
    ]
    low, middle, high = statistics.quantiles((one.ratio for one in rounds), n=4)
    served, alone, *shares = (
        statistics.median(getattr(one, field) for one in rounds)
        for field in ("served", "alone", "ranks_share", "server_share", "clients_share")
    )
    lines += [
        f"  {served:.2f} samples/s, ranks alone {alone:.2f}; ratio, median of {len(rounds)} rounds "
        f"{middle:.3f} ({low:.3f} to {high:.3f})",
        "  processors: ranks {:.2f}, server {:.3f}, clients {:.3f}".format(*shares),
    ]
    return "\n".join([*lines, *sorted(set(errors))])


def main() -> int:
    """Run the benchmark."""
    parser = Parser(description=__doc__.splitlines()[0] if __doc__ else "")
    add = parser.add_argument
    add("models", nargs="*", default=[], metavar="MODEL", help="resnet50, bert (both)")
    add("--requests", type=int, default=1024)
    add("--clients", type=int, default=16)
    add("--rounds", type=int, default=8, help="number of rounds that share the requests")
    add("--runs", type=int, default=8, help="steps of the ranks alone in a round")
    add("--batch", type=int, default=8)
    add("--grpc", action="store_true")
    add("--flags", default="", help="more flags of tensoropt-serve")
    add("--kill", action="store_true", help="kill a rank under load instead")
    add("--kill-after", type=float, default=8.0, metavar="S")
    add("--folder", type=Path, help="folder that keeps models and plans")
    arguments = parser.parse()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        for name in arguments.models or _MODELS:
            if arguments.kill:
                print(kill(name, folder, arguments), flush=True)
            else:
                print(_text(name, measure(name, folder, arguments)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
