"""Kills processes of jobs at random moments, and looks at what is left.

``python chaos.py [--kills 200] [--seed 0]``: each job is a plan on 2 or 4 ranks that
`tensoropt-run` starts, or that find each other by variables, as under torchrun. At a moment between
its start and a little after its usual end one of its processes gets SIGKILL, SIGTERM, SIGINT, or
SIGSTOP and then SIGKILL. Five seconds later no process may be left, no file and no port, and what
the job printed is a result or one line of error. Prints how many were killed, and what was left.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from job_names import FolderNames, MeetingNames
from onnx import helper, numpy_helper

from tensoropt.runtime.launch import guardian

RUN = [sys.executable, "-m", "tensoropt.runtime.cli.run"]
PATIENCE_S = 5.0
MEETING_S = 3.0  # how long ranks wait for each other
LIMIT_S = 120.0
TELEMETRY = ".ses"  # ONNX Runtime's, of every process; the launcher gives its ranks a folder for it
HOW = ("KILL", "KILL", "TERM", "INT", "STOP+KILL")
LINE = re.compile(r"(error|warning): [^\n]+\n")


@dataclass
class Job:
    """A job's own processes: that of the launcher, or of each rank; ``mark`` is in their
    environment."""

    mark: str
    folder: Path
    names: FolderNames | MeetingNames
    processes: list[subprocess.Popen[str]]
    port: int | None = None

    def end(self) -> None:
        """Kill what has not ended, and learn no more names."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.names.close()

    def pids(self) -> list[int]:
        """Return every living process of the job, whoever started it."""
        return sorted(pid for pid in _pids() if _has(pid, self.mark))


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _has(pid: int, mark: str) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return f"CHAOS={mark}".encode() in environment.split(b"\0") and state not in "ZX"


def model(path: Path) -> None:
    """Write a network of two products, which can be split between them."""
    draw = np.random.default_rng(0)
    weights = {n: draw.standard_normal((256, 256)).astype(np.float32) / 16 for n in ("w1", "w2")}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["a"], name="relu"),
        helper.make_node("MatMul", ["a", "w2"], ["y"], name="second"),
    ]
    x, y = (helper.make_tensor_value_info(name, 1, [64, 256]) for name in "xy")
    initializers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "main", [x], [y], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)


def plan(folder: Path, ranks: int) -> Path:
    """Write a plan of the network on so many ranks; return its folder."""
    source, out = folder / "model.onnx", folder / f"plan{ranks}"
    model(source)
    command = [Path(sys.executable).with_name("tensoropt-opt"), source, "--device", "cpu"]
    command += ["--devices", str(ranks), "--pick", "leanest", "-o", out]
    subprocess.run(command, check=True, capture_output=True)
    return out


def started(mark: str, plan: Path, ranks: int, folder: Path, *, alone: bool) -> Job:
    """Start a job: by itself where ``alone``, else as ranks that find each other."""
    own = {"CHAOS": mark, "TMPDIR": str(folder)}
    command = [*RUN, str(plan), "--runs", "200"]
    if alone:
        names = FolderNames(folder)
        return Job(mark, folder, names, [_process(command, {**os.environ, **own})])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    between = MeetingNames(port)
    own |= {
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "TENSOROPT_START_TIMEOUT_S": str(MEETING_S),
        "TENSOROPT_SECRET": f"secret of the job {mark}",
    }
    places = [
        {"RANK": str(r), "MASTER_ADDR": between.address if r else "127.0.0.1"} for r in range(ranks)
    ]
    processes = [_process(command, {**os.environ, **own, **place}) for place in places]
    return Job(mark, folder, between, processes, port)


def _process(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, start_new_session=True, **pipes)


def strike(pid: int, how: str) -> None:
    """Send a process the signal, or the two, of that name."""
    with suppress(ProcessLookupError):
        if how == "STOP+KILL":
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.3)
        os.kill(pid, getattr(signal, "SIG" + how.rpartition("+")[2]))


def left(job: Job) -> list[str]:
    """Return what is still there of a job, waiting for it to go."""
    end = time.monotonic() + PATIENCE_S + (0.0 if job.port is None else MEETING_S)
    while (found := _left(job)) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def _left(job: Job) -> list[str]:
    found = [f"process {pid}: {_command(pid)}" for pid in job.pids()]
    found += [f"file {path}" for path in job.folder.iterdir() if path.name != TELEMETRY]
    for name in sorted(job.names.found()):
        found += [f"file {path}" for path in guardian.shared_memory(name)]
    if job.port is not None and _listens(job.port):
        found.append(f"port {job.port}")
    return found


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[-80:]
    return "?"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def odd(job: Job, how: str) -> list[str]:
    """Return what a job printed that is neither a result nor a line of error.

    Python itself says where a SIGINT reached it before there was anybody to take it.
    """
    found = []
    for process in job.processes:
        out, err = process.communicate(timeout=LIMIT_S)
        if err and not LINE.fullmatch(err) and not (how == "INT" and "KeyboardInterrupt" in err):
            found.append(f"printed {err!r}")
        if process.returncode == 1 and not err:
            found.append(f"status 1 without a word: {out!r}")
    return found


def one(
    draw: random.Random, plans: dict[int, Path], length_s: float, say: Callable[[str], None]
) -> tuple[str, list[str]]:
    """Start a job and kill one of its processes; return what was done, and what was wrong."""
    ranks = draw.choice(sorted(plans))
    alone = draw.random() < 0.7
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        job = started(f"{draw.getrandbits(64):x}", plans[ranks], ranks, Path(name), alone=alone)
        try:
            time.sleep(draw.random() * length_s)
            what, wrong = _struck(job, draw)
        finally:
            job.end()
    say(f"{ranks} ranks, {'own launch' if alone else 'meeting'}: {what}: {wrong or 'ok'}")
    return what, wrong


def _struck(job: Job, draw: random.Random) -> tuple[str, list[str]]:
    pids = job.pids()
    if not pids:
        return "ended before", _rest(job, "")
    how, victim = draw.choice(HOW), draw.choice(pids)
    what = f"{how} {_which(victim, job)}"
    strike(victim, how)
    wrong = left(job) if how.endswith("KILL") else []
    return what, wrong + _rest(job, how)


def _which(pid: int, job: Job) -> str:
    if any(pid == process.pid for process in job.processes):
        return "launcher" if job.port is None else "rank that met"
    return "guardian" if "guardian.py" in _command(pid) else "rank"


def _rest(job: Job, how: str) -> list[str]:
    """Wait for the job's end: signals but SIGKILL are survived by some. Return what was wrong."""
    end = time.monotonic() + LIMIT_S
    while job.pids() and time.monotonic() < end:
        time.sleep(0.05)
    found = left(job)
    for pid in job.pids():
        os.kill(pid, signal.SIGKILL)
    return found + odd(job, how)


def chaos(kills: int, seed: int, say: Callable[[str], None]) -> tuple[Counter[str], list[str]]:
    """Kill so many times; return how often what was killed, and all that was wrong."""
    draw = random.Random(seed)
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="chaos-plans-") as name:
        plans = {ranks: plan(Path(name), ranks) for ranks in (2, 4)}
        length_s = _length_s(plans[4])
        while sum(counts.values()) - counts["ended before"] < kills:
            what, found = one(draw, plans, length_s, say)
            counts[what] += 1
            wrong += [f"{what}: {each}" for each in found]
    return counts, wrong


def _length_s(plan: Path) -> float:
    before = time.monotonic()
    subprocess.run([*RUN, plan, "--runs", "200"], check=True, capture_output=True)
    return 1.1 * (time.monotonic() - before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    counts, wrong = chaos(arguments.kills, arguments.seed, lambda text: print(text, flush=True))
    for what, count in sorted(counts.items()):
        print(f"{count:5} {what}")
    print(f"{len(wrong)} things wrong", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
