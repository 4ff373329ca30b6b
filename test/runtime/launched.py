"""Ranks started as torchrun, Kubernetes or a person in several shells start them: by variables."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path

from waiting import wait_until

BURNT_S = 0.3
"""Processor time that ranks which wait in MPI use up, and more than a small session takes."""

RUN = [sys.executable, "-m", "tensoropt.runtime.cli.run"]
LIMIT_S = 120.0

# Of a job that hangs; the next one where the machine is too busy to come to that by then.
LIMITS_S = (2.5, 10, 40)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def variables(rank: int, ranks: int, port: int, **others: str) -> dict[str, str]:
    """The environment of one rank."""
    facts = {"RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    facts["TENSOROPT_START_TIMEOUT_S"] = 100
    return {**os.environ, **{name: str(value) for name, value in facts.items()}, **others}


def start_rank(command: Sequence[object], environment: dict[str, str]) -> subprocess.Popen[str]:
    words = [str(word) for word in command]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, env=environment, **pipes)


@contextmanager
def started(ranks: int, command: Sequence[object], **others: str):
    """The processes of a job's ranks, none of which is left over at the end."""
    port = free_port()
    found = [start_rank(command, variables(rank, ranks, port, **others)) for rank in range(ranks)]
    try:
        yield found
    finally:
        for process in found:
            process.kill()
            process.communicate()


def ends(processes: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Wait for all; the exit status, stdout and stderr of each."""
    texts = [process.communicate(timeout=LIMIT_S) for process in processes]
    return [(p.returncode, *text) for p, text in zip(processes, texts, strict=True)]


def run(ranks: int, command: Sequence[object], **others: str) -> list[tuple[int, str, str]]:
    with started(ranks, command, **others) as processes:
        return ends(processes)


def wait_for_sessions(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Wait until ranks of ``tensoropt-run`` have met and are at work, or have ended."""
    for process in processes:
        maps = Path(f"/proc/{process.pid}/maps")
        _wait(process, lambda maps=maps: "onnxruntime" in maps.read_text())
        burnt = processor_s(process.pid) + BURNT_S
        _wait(process, lambda pid=process.pid, burnt=burnt: processor_s(pid) > burnt)


def _wait(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    wait_until(lambda: process.poll() is not None or condition(), LIMIT_S, "a rank did not come up")


def processor_s(pid: int) -> float:
    """The processor time of a process so far."""
    _, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    return sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")


def rank_processes(temporary: Path) -> dict[int, int]:
    """The process of each rank of the jobs whose folder lies in ``temporary``."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            environment = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        ranks = [e.removeprefix(b"RANK=") for e in environment if e.startswith(b"RANK=")]
        if ranks and any(w.startswith(str(temporary).encode()) for w in words):
            found[int(ranks[0])] = int(process.name)
    return found
