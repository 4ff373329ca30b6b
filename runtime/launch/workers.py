"""The kinds of jobs, and how each is checked, run on a rank, and handed from process to process."""

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
"""Where the ``WORKER`` of each kind of job is. They know how to launch, launching does not know
them: only their names."""


@dataclass(frozen=True)
class Worker(Generic[J, R]):
    """One kind of job; a job and its results are dataclasses that go through JSON as ``values``.

    ``check`` raises `UserError` for all that can be found before ranks start, and returns a plan
    that says how many. ``run`` takes the job, the communicator and the `LauncherLink`. The first
    Ctrl-C asks a ``stoppable`` job to end in order.
    """

    job_from: Callable[[dict[str, Any]], J]
    check: Callable[[J], Plan]
    run: Callable[[J, MPI.Comm, LauncherLink], R]
    to_values: Callable[[R], object]
    from_values: Callable[[Any], R]
    stoppable: bool = False


def worker_of(kind: str) -> Worker[Launched, Any]:
    """Return how jobs of a kind are done, importing what that takes."""
    worker: Worker[Launched, Any] = import_module(_WORKERS[kind]).WORKER
    return worker
