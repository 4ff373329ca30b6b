"""What a job can be asked, by whoever asks: the command line, HTTP, Python."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

__all__ = [
    "METHODS",
    "OVER",
    "STATES",
    "Event",
    "JobControl",
    "JobStatus",
    "ProfileRow",
    "RankStatus",
    "RefusedError",
    "StepRow",
    "SwitchResult",
]

State = Literal[
    "starting", "training", "preparing", "switching", "recovering", "ended", "stopped", "failed"
]

STATES: tuple[State, ...] = State.__args__  # type: ignore[attr-defined]
"""The first five are those of a job that lives: *preparing* trains while the next generation gets
ready, *switching* hands its state over, *recovering* has lost a generation."""

OVER: tuple[State, ...] = STATES[5:]
"""Those of a job that does not go on."""

METHODS = ("live", "stop-resume")
"""How a job changes its devices: from memory to memory, or by a checkpoint on disk."""


class RefusedError(Exception):
    """The job cannot do what was asked, and goes on as it was; the text is one line.

    ``is_conflict``: it could at another time (a switch is under way, the job has ended).
    """

    def __init__(self, text: str, *, is_conflict: bool = False) -> None:
        super().__init__(text)
        self.is_conflict = is_conflict


@dataclass(frozen=True)
class RankStatus:
    """A rank of the generation that trains; ``own_time_s`` is the median of its own time per step,
    without waiting for others, None before it has taken some."""

    rank: int
    device: str
    pid: int | None = None
    own_time_s: float | None = None


@dataclass(frozen=True)
class JobStatus:
    """Where a job is. ``steps`` is the step it ends at; ``step`` the last that was taken.

    ``devices`` and ``plan`` (a name in the family) are those that train, ``switching_to`` those
    that are to, None where no switch is under way. ``snapshot_step`` is what a crash now would go
    back to. ``started_at`` and ``ended_at`` count seconds since 1970.
    """

    name: str
    state: State
    step: int
    steps: int
    devices: int
    plan: str
    generation: int
    family: str
    loss: float | None = None
    step_time_s: float | None = None
    samples_per_s: float | None = None
    snapshot_step: int | None = None
    switching_to: str | None = None
    started_at: float = 0.0
    ended_at: float | None = None
    ranks: tuple[RankStatus, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class Event:
    """Something that happened, numbered from 1; ``time`` in seconds since 1970, ``text`` one line.

    ``kind`` is one of started, training, preparing, prepared, switched, refused, lost, recovered,
    straggler, checkpoint, ended, stopped, failed. ``facts`` are its figures.
    """

    number: int
    time: float
    step: int
    kind: str
    text: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StepRow:
    """One step of the log; ``loss`` is None where it is no number."""

    step: int
    loss: float | None
    time_s: float
    devices: int
    generation: int


@dataclass(frozen=True)
class ProfileRow:
    """Throughput with ``devices``: predicted by the plan, and measured where it has run.

    ``why_not`` says why there is no plan. ``process_bytes`` is per device, as the plan has it.
    """

    devices: int
    plan: str | None
    predicted_samples_per_s: float | None = None
    measured_samples_per_s: float | None = None
    measured_steps: int = 0
    process_bytes: int | None = None
    why_not: str | None = None


@dataclass(frozen=True)
class SwitchResult:
    """A switch that is done, after step ``step``.

    ``prepared_s`` is how long the next generation took to get ready, while the old one trained
    (``stop-resume``: 0). ``stall_s`` is the time in which no step was being taken, and by how much
    the first one after it took longer than usual; ``phases_s`` divides it. ``moved_bytes`` is what
    ranks copied from others' state, ``moved_by`` how: by the "memory" of this machine in which
    ranks on CPUs compute, from "device" to device, by the "host"'s memory where devices cannot
    reach each other, or by a "file".
    """

    from_devices: int
    to_devices: int
    step: int
    method: str
    prepared_s: float
    stall_s: float
    moved_bytes: int
    moved_by: str
    phases_s: dict[str, float] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Return what JSON says, where a switch goes ``from`` a number of devices ``to`` one."""
        facts = dict(vars(self))
        return {"from": facts.pop("from_devices"), "to": facts.pop("to_devices"), **facts}


class JobControl(Protocol):
    """A running job, from any thread. What cannot be done raises `RefusedError`."""

    def status(self) -> JobStatus: ...

    def events(self, after: int = 0) -> Sequence[Event]:
        """Return the events numbered higher than ``after``, in order."""
        ...

    def steps(self, after: int = 0, limit: int = 10_000) -> Sequence[StepRow]:
        """Return the steps later than ``after``, in order, at most the last ``limit``."""
        ...

    def output(self) -> str:
        """Return what the ranks printed, the last 64 KiB."""
        ...

    def profile(self, devices: Sequence[int] | None = None) -> Sequence[ProfileRow]:
        """Return throughput by number of devices, of the family's counts or of those asked for."""
        ...

    def scale(
        self, devices: int, *, plan: str | None = None, method: str = "live"
    ) -> Future[SwitchResult]:
        """Go on with ``devices``, or with another ``plan`` of the family (a name in it).

        Returns at once; the future ends with the switch, or with a `RefusedError`, and then the job
        goes on as it was.
        """
        ...

    def migrate(
        self, to: Sequence[str] | None = None, *, method: str = "live"
    ) -> Future[SwitchResult]:
        """Go on with as many other devices: those named, or such as are free, or new processes."""
        ...

    def stop(self) -> Future[None]:
        """Write a checkpoint and end; the future is done when it is over."""
        ...
