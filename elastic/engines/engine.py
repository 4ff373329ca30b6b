"""What a coordinator needs of whatever its ranks run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tensoropt.elastic.generation.job import GenerationJob

__all__ = ["Engine", "Host", "Outcome"]

Outcome = Mapping[str, Any]
"""How a generation ended: ``result``, the values of a `TrainResult`, or ``error``, one line."""


class Host(Protocol):
    """The processes of one generation."""

    def begin(self) -> None:
        """Let them start: how to find them has been written down, should the coordinator die."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return what `Engine.find` finds them by, as JSON."""
        ...

    def kill(self) -> None:
        """End all of them, and what they hold; those that have ended already are no error."""
        ...


class Engine(Protocol):
    """Where processes come from."""

    name: str

    def address(self) -> str:
        """Return where ranks can reach a coordinator in this process: "@name" or "host:port"."""
        ...

    def devices(self) -> Sequence[str]:
        """Return the names of the devices there are now."""
        ...

    def start(
        self,
        job: GenerationJob,
        devices: Sequence[str],
        folder: Path,
        ended: Callable[[Outcome], None],
    ) -> Host:
        """Return what starts a rank on each of ``devices`` when it is told to begin.

        ``folder`` is the job's, ``ended`` is called once.

        Raises `UserError` where that cannot be.
        """
        ...

    def find(
        self, facts: Mapping[str, Any], folder: Path, ended: Callable[[Outcome], None]
    ) -> Host | None:
        """Return the processes that a coordinator before this one started, None if they ended."""
        ...

    def close(self) -> None:
        """Let go of what the engine holds."""
        ...
