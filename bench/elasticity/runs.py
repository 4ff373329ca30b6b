"""Runs of a subject: under a coordinator, or as tensoropt-run trains a plan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import waiting

from elasticity import source
from elasticity.subjects import Subject
from tensoropt.elastic.api.client import Client
from tensoropt.runtime.support.errors import UserError

__all__ = ["elastic_job", "environment", "losses_in", "plain_command", "tool", "wait_until"]

_PATIENCE_S = 300.0


def tool(name: str) -> str:
    """Return the path of a command of this environment."""
    return str(Path(sys.executable).with_name(name))


def environment(subject: Subject, folder: Path, pace_s: float = 0.0) -> dict[str, str]:
    """Return the environment of the recording source, which writes its records to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = {source.DATA: subject.data, source.READS: folder, source.PACE: pace_s}
    return {**os.environ, **{name: str(value) for name, value in facts.items()}}


def _training(subject: Subject, steps: int, options: Mapping[str, Any]) -> list[str]:
    given = {"learning_rate": subject.recipe.learning_rate, **options}
    flags = [text for name, value in given.items() for text in _flag(name, value)]
    data = f"{source.__file__}:open_samples"
    return ["--data", data, "--steps", str(steps), *map(str, flags)]


def _flag(name: str, value: Any) -> list[Any]:
    flag = f"--{name.replace('_', '-')}"
    return [flag] if value is True else [flag, value]


def plain_command(subject: Subject, plan: str, steps: int, log: Path, **options: Any) -> list[str]:
    """Return the command that trains a plan of the family without a coordinator."""
    start = ["--resume", str(subject.family.initial), "--log", str(log)]
    training = _training(subject, steps, options)
    return [tool("tensoropt-run"), str(subject.family.folder / plan), "--train", *start, *training]


@contextmanager
def elastic_job(
    subject: Subject,
    name: str,
    steps: int,
    devices: int,
    given: Mapping[str, str],
    **options: Any,
) -> Iterator[tuple[Client, int]]:
    """Run a job under its own coordinator inside a with statement, once it trains.

    Yields its client, and the process of its coordinator.

    Jobs are stored in $TENSOROPT_JOBS; ``given`` is the `environment`.
    """
    command = [tool("tensoropt-job"), "run", str(subject.family.folder), "--name", name]
    command += ["--devices", str(devices), *_training(subject, steps, options)]
    process = subprocess.Popen(command, env=given, stdout=subprocess.DEVNULL)
    try:
        yield _client(name, process), process.pid
    finally:
        with suppress(UserError):
            Client(name).stop(wait=False)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()


def _client(name: str, process: subprocess.Popen[bytes]) -> Client:
    def trains() -> bool:
        if process.poll() is not None:
            raise UserError(f"job '{name}' ended before it trained")
        with suppress(UserError):
            return Client(name).status().state == "training"
        return False

    wait_until(trains)
    return Client(name)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait minutes until ``is_so`` returns True. Raises TimeoutError."""
    waiting.wait_until(is_so, _PATIENCE_S)


def losses_in(log: Path) -> list[float]:
    """Return the losses in a log of tensoropt-run, in the order of their steps."""
    return [json.loads(line)["loss"] for line in log.read_text(encoding="utf-8").splitlines()]
