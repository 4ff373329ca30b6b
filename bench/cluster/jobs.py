"""Jobs to schedule: jobs of a trace with models, and their states."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from cluster.profiles import Profile
from cluster.trace import Submission

__all__ = ["Job", "State", "jobs_of", "load_of", "rounded"]


@dataclass(frozen=True)
class Job:
    """A job with ``work`` in device seconds, processed at `profile.speed` of its devices.

    It takes its service time on ``request`` devices. ``minimum`` is the fewest devices on which it
    runs, ``most`` the largest number under an elastic policy.
    """

    index: int
    arrival_s: float
    request: int
    work: float
    profile: Profile
    minimum: int
    most: int

    @cached_property
    def first(self) -> tuple[int, float]:
        """Its minimum, and the speed per device there."""
        return self.minimum, self.profile.speed[self.minimum] / self.minimum

    @property
    def service_s(self) -> float:
        """Its time on the requested devices without interruption."""
        return self.work / self.profile.speed[self.request]


@dataclass(slots=True, eq=False)
class State:
    """State of a job; times in seconds, ``attained`` in seconds of work times devices."""

    job: Job
    remaining: float
    devices: int = 0
    attained: float = 0.0
    since: float = 0.0
    ready: float = 0.0
    version: int = 0
    started: float = math.inf
    switched: float = -math.inf
    finished: float = math.inf
    switches: int = 0
    resumes: int = 0
    stalled: float = 0.0
    line: tuple[int, ...] = ()
    key: tuple[float, float, int] = (math.inf, 0.0, 0)
    credit: float = field(default=0.0)

    @property
    def speed(self) -> float:
        """Work per second on its present devices."""
        return self.job.profile.speed[self.devices] if self.devices else 0.0

    @property
    def owed(self) -> float:
        """Service attained since its last promotion."""
        return self.attained - self.credit


def rounded(devices: int) -> int:
    """Return the least power of two that is not below ``devices``."""
    return 1 << (devices - 1).bit_length()


def jobs_of(
    trace: Sequence[Submission],
    profiles: Sequence[Profile],
    devices: int,
    load: float,
    seed: int,
    *,
    lean: bool = True,
    grow: int | None = None,
) -> list[Job]:
    """Return the jobs of a trace that fit ``devices``, with arrivals scaled to ``load``.

    A request is rounded up to a power of two devices, with the same time. The model is drawn, by
    ``seed`` and the job's place in the trace alone, from the models that fit the request. The
    minimum is the profile's; if not ``lean``, it is the minimum of replicas, or the request if
    replicas never fit. The job may grow to ``grow`` times its request, by default to all devices.
    """
    fits = [job for job in trace if rounded(job.devices) <= devices]
    scale = load_of(fits, devices) / load
    first = fits[0].arrival_s
    draw = random.Random(seed)
    jobs = []
    for index, job in enumerate(fits):
        request = rounded(job.devices)
        profile = draw.choice([held for held in profiles if _runs(held, request)])
        least = profile.minimum if lean else min(profile.replicas or request, request)
        work = job.duration_s * profile.speed[request]
        most = devices if grow is None else request * grow
        at = (job.arrival_s - first) * scale
        jobs.append(Job(index, at, request, work, profile, least, most))
    return jobs


def _runs(profile: Profile, request: int) -> bool:
    return request in profile.speed


def load_of(trace: Sequence[Submission], devices: int) -> float:
    """Return the requested device seconds over the available ones while jobs arrive."""
    span = trace[-1].arrival_s - trace[0].arrival_s
    return sum(job.duration_s * rounded(job.devices) for job in trace) / (span * devices)
