"""Jobs that measure graphs on ranks, and their results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from tensoropt.runtime.support.job import Launched

__all__ = ["NO_TIME", "Measured", "ProfileJob", "Task"]

NO_TIME = "no time was left"
"""The error of a task that was not started."""


@dataclass(frozen=True)
class Task:
    """A graph that every rank runs at the same time: ``{rank}`` in ``graph`` is its number.

    ``seconds`` is the time for all of its runs. ``trains``: the graph is part of a training step.
    """

    graph: str
    seconds: float
    trains: bool = False

    def path(self, rank: int) -> str:
        """Return the path of a rank's graph."""
        return self.graph.replace("{rank}", str(rank))


@dataclass(frozen=True, kw_only=True)
class ProfileJob(Launched):
    """Tasks to run in sequence, either timed as a whole or ``traced`` node by node.

    No task is started after ``until``, in seconds of the monotonic clock; a task that is running
    then stops after a few runs.
    """

    kind: ClassVar[str] = "profile"
    tasks: tuple[Task, ...]
    traced: bool = False
    until: float | None = None

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> ProfileJob:
        """Return the job with the fields of a JSON object."""
        tasks = tuple(Task(**task) for task in values.pop("tasks"))
        return cls(**values, tasks=tasks)


@dataclass(frozen=True)
class Measured:
    """The result of one task.

    ``step_s``: time of the slowest rank in the fastest run, as other work on the machine only adds
    time. ``nodes``, of a traced task: mean kernel time over all ranks in the fastest run, by the
    name of a node that ONNX Runtime ran on rank 0; for a collective the minimum over ranks, which
    excludes waiting for other ranks. ``graph`` is the file with the graph of these nodes.
    ``peak_bytes``, of a timed task: memory added by its session, on the rank with the most; None if
    it cannot be measured. ``process_bytes``: memory of a rank's process at the end, on a device all
    memory in use there. ``error``: the reason why the task could not be run. A job without tasks
    has one result, with the bytes of memory of each GPU by its number, and their names.
    """

    step_s: float = 0.0
    runs: int = 0
    nodes: dict[str, float] | None = None
    graph: str | None = None
    peak_bytes: int | None = None
    process_bytes: int | None = None
    error: str | None = None
    gpu_bytes: list[int] = field(default_factory=list)
    gpu_names: list[str] = field(default_factory=list)
