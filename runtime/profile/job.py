"""What is asked of ranks that measure: graphs to run, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from tensoropt.runtime.support.job import Launched

__all__ = ["NO_TIME", "Measured", "ProfileJob", "Task"]

NO_TIME = "no time was left"
"""The error of a task that was not begun."""


@dataclass(frozen=True)
class Task:
    """A graph that every rank runs at the same time: ``{rank}`` in ``graph`` is its number.

    ``seconds`` is what its runs may take together. One that ``trains`` is of a training step.
    """

    graph: str
    seconds: float
    trains: bool = False

    def path(self, rank: int) -> str:
        """Return the path of a rank's graph."""
        return self.graph.replace("{rank}", str(rank))


@dataclass(frozen=True, kw_only=True)
class ProfileJob(Launched):
    """Tasks to run one after another, either timed as a whole or ``traced`` node by node.

    None is begun after ``until``, in seconds of the clock that does not jump; by then the last one
    ends after a few runs.
    """

    kind: ClassVar[str] = "profile"
    tasks: tuple[Task, ...]
    traced: bool = False
    until: float | None = None

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> ProfileJob:
        """Return the job whose fields JSON held."""
        tasks = tuple(Task(**task) for task in values.pop("tasks"))
        return cls(**values, tasks=tasks)


@dataclass(frozen=True)
class Measured:
    """What one task gave.

    ``step_s``: the slowest rank's time of a run; of its runs the fastest, as other work on the
    machine only adds to a time. ``nodes``: of a traced task, by the name of a node that ONNX
    Runtime ran on rank 0, the mean time of its kernel on all ranks, in the fastest of its runs;
    of a collective the least, which has no waiting for others in it. ``graph`` is the file with the
    graph that those nodes are of. ``peak_bytes``: of a task that is timed, the memory that its
    session took on the rank where it took most, None where nothing says. ``process_bytes`` is all
    that the process of a rank had by then, or on a device what is in use there. ``error`` says why
    the task could not be run. A job without tasks has one result, with the bytes of memory of each
    GPU by its number, and their names.
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
