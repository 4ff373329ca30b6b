"""The interface of a running job, shared by the command line, HTTP and Python."""

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
"""States of a job; the first five are of a running job. *preparing*: trains while the next
generation starts; *switching*: hands over its state; *recovering*: has lost a generation."""

OVER: tuple[State, ...] = STATES[5:]
"""Final states."""

METHODS = ("live", "stop-resume")
"""Methods of changing devices: from memory to memory, or through a checkpoint on disk."""


class RefusedError(Exception):
    """The job rejects a request and continues unchanged; the text is one line.

    ``is_conflict``: the request conflicts with the job's present state (a switch is under way, the
    job has ended).
    """

    def __init__(self, text: str, *, is_conflict: bool = False) -> None:
        super().__init__(text)
        self.is_conflict = is_conflict


@dataclass(frozen=True)
class RankStatus:
    """A rank of the training generation; ``own_time_s`` is its median time per step, excluding
    waits for other ranks, or None before its first steps."""

    rank: int
    device: str
    pid: int | None = None
    own_time_s: float | None = None


@dataclass(frozen=True)
class JobStatus:
    """The progress of a job. ``steps`` is its final step, ``step`` the last completed one.

    ``devices`` and ``plan`` (a name in the family) are the training ones. ``switching_to`` is the
    plan of the next generation, None if no switch is under way. ``snapshot_step`` is the step that
    a crash now would return to. ``started_at`` and ``ended_at`` count seconds since 1970.
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
    """An event of a job, numbered from 1; ``time`` in seconds since 1970, ``text`` is one line.

    ``kind`` is one of started, training, preparing, prepared, switched, refused, lost, recovered,
    straggler, checkpoint, no-checkpoint, damaged, disk, ended, stopped, failed. ``facts`` are its
    figures.
    """

    number: int
    time: float
    step: int
    kind: str
    text: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StepRow:
    """One step of the log; ``loss`` is None if it is not finite."""

    step: int
    loss: float | None
    time_s: float
    devices: int
    generation: int


@dataclass(frozen=True)
class ProfileRow:
    """Throughput with ``devices``: predicted by the plan, and measured if the plan has run.

    ``why_not`` is the reason if there is no plan. ``process_bytes`` is the plan's figure per
    device.
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
    """A completed switch, after step ``step``.

    ``prepared_s`` is the time that the next generation took to start while the old one trained
    (``stop-resume``: 0). ``stall_s`` is the time without a running step, plus the extra time of the
    first step after the switch; ``phases_s`` divides it. ``moved_bytes`` counts the bytes that
    ranks copied from other ranks' state. ``moved_by`` is the path: the "memory" of this machine in
    which CPU ranks compute, "device" to device, the "host"'s memory if devices cannot reach each
    other, or a "file".
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
        """Return the JSON fields; the numbers of devices are named ``from`` and ``to``."""
        facts = dict(vars(self))
        return {"from": facts.pop("from_devices"), "to": facts.pop("to_devices"), **facts}


class JobControl(Protocol):
    """A running job; callable from any thread. A rejected request raises `RefusedError`."""

    def status(self) -> JobStatus: ...

    def events(self, after: int = 0) -> Sequence[Event]:
        """Return the events numbered higher than ``after``, in order."""
        ...

    def steps(self, after: int = 0, limit: int = 10_000) -> Sequence[StepRow]:
        """Return the steps later than ``after``, in order, at most the last ``limit``."""
        ...

    def output(self) -> str:
        """Return the last 64 KiB of the ranks' output."""
        ...

    def profile(self, devices: Sequence[int] | None = None) -> Sequence[ProfileRow]:
        """Return throughput by number of devices, for ``devices`` or the family's counts."""
        ...

    def scale(
        self, devices: int, *, plan: str | None = None, method: str = "live"
    ) -> Future[SwitchResult]:
        """Continue with ``devices``, or with another ``plan`` of the family (its name there).

        Returns immediately. The future ends with the switch, or with a `RefusedError`: the job then
        continues unchanged.
        """
        ...

    def migrate(
        self, to: Sequence[str] | None = None, *, method: str = "live"
    ) -> Future[SwitchResult]:
        """Continue on the same number of other devices: ``to``, or free devices first.

        Ranks on the same devices become new processes.
        """
        ...

    def stop(self) -> Future[None]:
        """Write a checkpoint and end; the future is done when the job has ended."""
        ...
