"""A read-only view of an ended job, from its folder."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import NoReturn

from tensoropt.elastic.control import (
    Event,
    JobStatus,
    ProfileRow,
    RefusedError,
    StepRow,
    SwitchResult,
)
from tensoropt.elastic.jobs import JobFolder

__all__ = ["EndedJob"]


class EndedJob:
    """A `JobControl` that reads the files of ``folder``."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder

    def status(self) -> JobStatus:
        """Return the job's last status."""
        status = self._folder.status()
        if status is None:
            raise RefusedError("the job never started")
        return status

    def events(self, after: int = 0) -> Sequence[Event]:
        """Return the events numbered higher than ``after``."""
        return self._folder.events(after)

    def steps(self, after: int = 0, limit: int = 10_000) -> Sequence[StepRow]:
        """Return the steps later than ``after``, at most the last ``limit``."""
        return self._folder.steps(after, limit)

    def output(self) -> str:
        """Return the last 64 KiB of the ranks' output."""
        return self._folder.output()

    def profile(self, devices: Sequence[int] | None = None) -> Sequence[ProfileRow]:
        """Refuse: measured throughput is not stored in the folder."""
        self._refuse()

    def scale(
        self, devices: int, *, plan: str | None = None, method: str = "live"
    ) -> Future[SwitchResult]:
        """Refuse."""
        self._refuse()

    def migrate(
        self, to: Sequence[str] | None = None, *, method: str = "live"
    ) -> Future[SwitchResult]:
        """Refuse."""
        self._refuse()

    def stop(self) -> Future[None]:
        """Refuse."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        status = self.status()
        text = f"expected a job that runs, got: {status.state} at step {status.step}"
        raise RefusedError(text, is_conflict=True)
