"""The kinds of jobs: functions that check, run, serialise and deserialise each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tensoropt.runtime.plan.plan import Plan

if TYPE_CHECKING:
    from mpi4py import MPI

    from tensoropt.runtime.launch.link import LauncherLink
    from tensoropt.runtime.support.job import Launched

__all__ = ["Worker", "worker_of"]

J = TypeVar("J")
R = TypeVar("R")

_WORKERS = {
    "run": "tensoropt.runtime.inference.worker",
    "train": "tensoropt.runtime.training.worker",
    "profile": "tensoropt.runtime.profile.worker",
    "pool": "tensoropt.runtime.pool.worker",
    "generation": "tensoropt.elastic.generation.worker",
}
"""The module that defines the ``WORKER`` of each kind of job. Workers import the launcher, so the
launcher refers to them by name."""


@dataclass(frozen=True)
class Worker(Generic[J, R]):
    """One kind of job. Jobs and results are dataclasses, sent as JSON ``values``.

    ``check`` raises `UserError` for all errors that can be found before ranks start, and returns a
    plan with the number of ranks. ``run`` takes the job, the communicator and the `LauncherLink`.
    After the first Ctrl-C a ``stoppable`` job ends in order. If the job has ``requests``, its time
    limits are for each of them, and ``run`` enforces them.
    """

    job_from: Callable[[dict[str, Any]], J]
    check: Callable[[J], Plan]
    run: Callable[[J, MPI.Comm, LauncherLink], R]
    to_values: Callable[[R], object]
    from_values: Callable[[Any], R]
    stoppable: bool = False
    requests: bool = False


def worker_of(kind: str) -> Worker[Launched, Any]:
    """Import and return the worker for a kind of job."""
    worker: Worker[Launched, Any] = import_module(_WORKERS[kind]).WORKER
    return worker
