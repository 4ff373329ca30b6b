"""Kills processes of elastic jobs at random moments, and looks at how the jobs end.

``python elastic_chaos.py [--kills 100] [--seed 0]``: each job trains a small network while it is
told to change its devices. Now and then one of its processes gets SIGKILL: a rank, a launcher or
its guardian, of the generation that trains or of one that gets ready, or the coordinator, which is
then started again with the same command. The job must end by itself: every step is once in its
folder and in its --log, with the loss of the unbroken run on one device, no crash costs more than
--snapshot-every steps, and no process, file or socket is left. Before its first step no third
process is killed, as a job that fails so often without one is given up. Prints how many were
killed, and what was wrong. Where TENSOROPT_STAND_IN names the stand-ins for NCCL and CUDA, the jobs
run on these.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from chaos import TELEMETRY, _pids, strike
from onnx import helper, numpy_helper

from tensoropt.elastic.api.client import Client
from tensoropt.elastic.jobs import JobFolder
from tensoropt.runtime.support.errors import UserError

OPT = Path(sys.executable).with_name("tensoropt-opt")
JOB = [sys.executable, "-m", "tensoropt.elastic.cli.job"]
RUN = [sys.executable, "-m", "tensoropt.runtime.cli.run"]
COUNTS = (1, 2, 4)
BATCH, WIDTH, CLASSES = 16, 64, 8
STEPS, EVERY = 400, 50
KILLS_PER_JOB = 4
KILLS_BEFORE_A_STEP = 2
CLEANING_S = 6.0
PATIENCE_S = 10.0
LIMIT_S = 240.0


def model(path: Path) -> None:
    """Write a network with batch normalisation and dropout."""
    draw = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        values = draw.standard_normal(shape) / np.sqrt(shape[0])
        return numpy_helper.from_array(values.astype(np.float32), name)

    held = [weight("w1", WIDTH, WIDTH), weight("w2", WIDTH, CLASSES)]
    for name, value in (("scale", 1), ("shift", 0), ("mean", 0), ("var", 1)):
        held.append(numpy_helper.from_array(np.full(WIDTH, value, np.float32), name))
    held.append(numpy_helper.from_array(np.float32(0.1), "ratio"))
    held.append(numpy_helper.from_array(np.array(True), "training"))
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node(
            "BatchNormalization", ["h", "scale", "shift", "mean", "var"], ["n"], name="norm"
        ),
        helper.make_node("Relu", ["n"], ["r"], name="relu"),
        helper.make_node("Dropout", ["r", "ratio", "training"], ["d"], name="dropout"),
        helper.make_node("MatMul", ["d", "w2"], ["scores"], name="second"),
    ]
    ends = [
        helper.make_tensor_value_info("x", 1, [BATCH, WIDTH]),
        helper.make_tensor_value_info("scores", 1, [BATCH, CLASSES]),
    ]
    graph = helper.make_graph(nodes, "main", [ends[0]], [ends[1]], held)
    opset = helper.make_opsetid("", 20)
    onnx.save(helper.make_model(graph, opset_imports=[opset]), path)


@dataclass
class Subject:
    """What all jobs train: a family, its data, and the losses of the unbroken run."""

    folder: Path
    losses: list[float] = field(default_factory=list)

    @property
    def family(self) -> Path:
        return self.folder / "family"

    @property
    def data(self) -> Path:
        return self.folder / "data.npz"

    def make(self) -> None:
        model(self.folder / "net.onnx")
        draw = np.random.default_rng(1)
        x = draw.standard_normal((200, WIDTH)).astype(np.float32)
        np.savez(self.data, x=x, labels=draw.integers(0, CLASSES, 200))
        flags = ["--train", "--loss", "softmax-cross-entropy:scores,labels", "--optimizer", "adamw"]
        flags += ["--objective", "profile", "--devices", str(max(COUNTS)), "-o", self.family]
        _done([OPT, self.folder / "net.onnx", *flags])
        log = self.folder / "unbroken.jsonl"
        flags = ["--train", "--data", self.data, "--steps", str(STEPS), *TRAINING, "--log", log]
        flags += ["--resume", self.family / "initial.safetensors"]
        _done([*RUN, self.family / "1", *flags])
        self.losses = [json.loads(line)["loss"] for line in log.read_text().splitlines()]


KINDS = ("rank", "rank", "launcher", "guardian", "coordinator")
TRAINING = ["--shuffle", "3", "--seed", "5", "--threads", "1"]
DEVICES = ["--provider", "cuda", "--share-gpus"] if os.environ.get("TENSOROPT_STAND_IN") else []


def _done(command: list[object]) -> None:
    made = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if made.returncode:
        raise RuntimeError(f"{command[0]}: {made.stderr}")


class Job:
    """One job, whose coordinator may be started several times."""

    def __init__(self, subject: Subject, folder: Path, mark: str) -> None:
        self.addresses: set[str] = set()
        self.launcher_struck_at = -CLEANING_S
        self.mark, self.folder, self.name = mark, folder, f"chaos-{mark}"
        self.log = folder / "log.jsonl"
        self._environment = {
            **os.environ,
            "CHAOS": mark,
            "TENSOROPT_JOBS": str(folder / "jobs"),
            "TMPDIR": str(folder / "tmp"),
        }
        (folder / "tmp").mkdir()
        flags = ["--data", subject.data, "--steps", str(STEPS), "--devices", "2", *TRAINING]
        flags += [*DEVICES, "--snapshot-every", str(EVERY), "--checkpoint-every", str(EVERY)]
        flags += ["--grace", "20", "--name", self.name, "--log", self.log]
        self._command = list(map(str, [*JOB, "run", subject.family, *flags]))
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self._command,
            env=self._environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def pids(self) -> dict[str, list[int]]:
        """Return the living processes of the job by what they are."""
        found: dict[str, list[int]] = {}
        for pid in _pids():
            with suppress(OSError):
                environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                if f"CHAOS={self.mark}".encode() in environment and state not in "ZX":
                    found.setdefault(_kind(pid), []).append(pid)
        return found

    def open(self) -> JobFolder:
        os.environ["TENSOROPT_JOBS"] = self._environment["TENSOROPT_JOBS"]
        return JobFolder.open(self.name)


def _kind(pid: int) -> str:
    command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    for part, kind in (
        ("launch.rank", "rank"),
        ("guardian.py", "guardian"),
        ("engines.keeper", "launcher"),
        ("elastic.cli.job", "coordinator"),
    ):
        if part in command:
            return kind
    return "other"


def change_devices(job: Job, draw: random.Random, over: threading.Event) -> None:
    """Ask for other devices now and then, whatever becomes of it."""
    while not over.wait(draw.random() * 1.5):
        with suppress(Exception):
            Client(job.name).scale(draw.choice(COUNTS), wait=False)


def one(
    subject: Subject, draw: random.Random, kills: int, say: Callable[[str], None]
) -> tuple[Counter[str], list[str]]:
    """Run a job, kill ``kills`` of its processes; return which, and what was wrong."""
    killed: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        job = Job(subject, Path(name), f"{draw.getrandbits(64):x}")
        over = threading.Event()
        job_thread = threading.Thread(target=change_devices, args=(job, draw, over), daemon=True)
        os.environ["TENSOROPT_JOBS"] = str(Path(name) / "jobs")
        job_thread.start()
        try:
            for _ in range(kills):
                time.sleep(0.5 + draw.random() * 4)
                if killed.total() >= KILLS_BEFORE_A_STEP:
                    _wait_for_a_step(job)
                killed.update(_strike(job, draw))
            wrong = _end(job, subject)
        finally:
            over.set()
            job_thread.join()
            for pids in job.pids().values():
                for pid in pids:
                    strike(pid, "KILL")
    say(f"{dict(killed)}: {wrong or 'ok'}")
    return killed, wrong


def _wait_for_a_step(job: Job) -> None:
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end and job.process.poll() is None:
        with suppress(OSError, UserError), job.open() as folder:
            if folder.steps(0, 1):
                return
        time.sleep(0.05)


def _strike(job: Job, draw: random.Random) -> list[str]:
    """Kill one process of the job; a coordinator comes again."""
    with suppress(OSError, UserError), job.open() as folder:
        saved = json.loads((folder.path / "coordinator.json").read_text())
        job.addresses.add(saved["address"])
    found = job.pids()
    kinds = [kind for kind in KINDS if kind in found]
    if time.monotonic() < job.launcher_struck_at + CLEANING_S:
        kinds = [kind for kind in kinds if kind != "guardian"]  # it cleans up after the launcher
    if not kinds or job.process.poll() is not None:
        return []
    kind = draw.choice(kinds)
    if kind == "launcher":
        job.launcher_struck_at = time.monotonic()
    strike(draw.choice(found[kind]), "KILL")
    if kind == "coordinator":
        job.process.communicate()
        time.sleep(draw.random())
        job.start()
    return [kind]


def _end(job: Job, subject: Subject) -> list[str]:
    """Wait for the job's end; return what was wrong with it."""
    try:
        out, err = job.process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return [f"did not end within {LIMIT_S:g} s: {_story(job)}"]
    wrong = [] if job.process.returncode == 0 else [f"status {job.process.returncode}: {out} {err}"]
    wrong += _log_faults(job, subject)
    end = time.monotonic() + PATIENCE_S
    while (left := _left(job)) and time.monotonic() < end:
        time.sleep(0.1)
    return [*wrong, *left, *([_story(job)] if wrong or left else [])]


def _log_faults(job: Job, subject: Subject) -> list[str]:
    try:
        with job.open() as folder:
            steps, events = folder.steps(0, 10**9), folder.events()
    except UserError as error:
        return [str(error)]
    faults = []
    if [row.step for row in steps] != list(range(1, STEPS + 1)):
        faults.append(f"log: {len(steps)} steps, the last {steps[-1].step if steps else None}")
    logged = [json.loads(line)["step"] for line in job.log.read_text().splitlines()]
    if logged != [row.step for row in steps]:
        faults.append(f"--log: {len(logged)} steps, the folder has {len(steps)}")
    for row, loss in zip(steps, subject.losses, strict=False):
        if abs(row.loss - loss) > 1e-4 * abs(loss):
            faults.append(f"step {row.step}: loss {row.loss}, expected {loss}")
            break
    for event in events:
        if event.facts.get("repeated_steps", 0) > EVERY:
            faults.append(f"{event.facts['repeated_steps']} steps were taken again")
    return faults


def _left(job: Job) -> list[str]:
    found = [f"{kind} {pid} is left" for kind, pids in job.pids().items() for pid in pids]
    temporary = job.folder / "tmp"
    found += [f"{path} is left" for path in temporary.iterdir() if path.name != TELEMETRY]
    sockets = Path("/proc/net/unix").read_text()
    with suppress(OSError, ValueError, UserError), job.open() as folder:
        saved = folder.path / "coordinator.json"
        if json.loads(saved.read_text())["generations"]:
            found.append(f"generations are left in {saved.name}")
    found += [f"socket {address} is left" for address in job.addresses - {""} if address in sockets]
    return found


def _story(job: Job) -> str:
    with suppress(OSError, UserError), job.open() as folder:
        return "\n  ".join(f"{e.step} {e.kind}: {e.text}" for e in folder.events())
    return "no events"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    draw, killed, wrong = random.Random(given.seed), Counter[str](), []
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        subject = Subject(Path(name))
        subject.make()
        while killed.total() < given.kills:
            now, faults = one(subject, draw, KILLS_PER_JOB, lambda text: print(text, flush=True))
            killed += now
            wrong += faults
    print(f"{killed.total()} killed ({dict(killed)}), {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
