"""Jobs that tests start with the command, ask by the client, and end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensoropt.elastic.api.client import Client
from tensoropt.elastic.control import JobStatus
from tensoropt.elastic.jobs import JobFolder

__all__ = ["RunningJob", "unbroken"]

JOB = [sys.executable, "-m", "tensoropt.elastic.cli.job"]
RUN = [sys.executable, "-m", "tensoropt.runtime.cli.run"]
LIMIT_S = 120.0


class RunningJob:
    """``tensoropt-job run`` in a process of its own; jobs live in $TENSOROPT_JOBS."""

    def __init__(self, name: str, family: Path, *flags: object) -> None:
        self.name = name
        self._command = list(map(str, [*JOB, "run", family, "--name", name, *flags]))
        self.start()

    def start(self) -> None:
        """Run the same command, again where its process has ended."""
        if hasattr(self, "process"):
            self.process.communicate()
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(self._command, text=True, start_new_session=True, **pipes)

    def client(self) -> Client:
        return Client(self.name)

    def wait(self, what: Callable[[JobStatus], bool]) -> JobStatus:
        """Wait until the job stands so; returns how it does."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"ended: {self.process.communicate()}")
            try:
                status = self.client().status()
            except Exception:  # it is not there yet
                time.sleep(0.05)
                continue
            if what(status):
                return status
            time.sleep(0.05)
        raise AssertionError(f"not within {LIMIT_S:g} s: {status}")

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; returns status, stdout and stderr."""
        out, err = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, out, err

    def kill(self) -> None:
        """Be sure that nothing of it stays."""
        self.process.kill()
        self.process.communicate()
        with JobFolder.open(self.name) as folder:
            saved = folder.path / "coordinator.json"
            facts = json.loads(saved.read_text()) if saved.exists() else {"generations": {}}
        for one in facts["generations"].values():
            if "pid" in one["host"] and Path(f"/proc/{one['host']['pid']}").exists():
                os.kill(one["host"]["pid"], 15)

    def losses(self) -> list[float]:
        """Return the loss of every step, which must each be there once."""
        with JobFolder.open(self.name) as folder:
            rows = folder.steps(0, 1_000_000)
        assert [row.step for row in rows] == list(range(1, len(rows) + 1))
        return [row.loss for row in rows]


def unbroken(family: Path, data: Path, steps: int, log: Path, *flags: object) -> list[float]:
    """Return the losses of the run on one device that nothing disturbs."""
    start = ["--resume", family / "initial.safetensors", "--log", log]
    command = [*RUN, family / "1", "--train", "--data", data, "--steps", steps, *start, *flags]
    made = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return [json.loads(line)["loss"] for line in log.read_text().splitlines()]
