"""What a coordinator needs of whatever its ranks run on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

from tensoropt.elastic.generation.job import GenerationJob
from tensoropt.elastic.generation.parts import Part, Parts
from tensoropt.runtime.support.messages import Message

__all__ = ["Carrier", "Engine", "Host", "Outcome"]

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


class Carrier(Protocol):
    """A state on its way from the ranks that have it to those of another generation."""

    orders: Sequence[Message]
    """What each of the latter is told: ``plan`` and ``blocks`` of those that have it, and the
    ``distances`` to them. All blocks are on its own node."""
    carried_bytes: int
    """What has gone from node to node."""

    def carry(self) -> None:
        """Bring to each node what its ranks need, as it is now. Raises `UserError`."""
        ...

    def close(self) -> None:
        """Let go of what was brought: all have taken it, or nobody will."""
        ...


class Engine(Protocol):
    """Where processes come from."""

    name: str

    def address(self, before: str | None) -> str:
        """Return where ranks can reach a coordinator in this process: "@name" or "host:port".

        ``before`` is where they reached the one before it.
        """
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

    def carrier(self, parts: Parts, plan: str, nodes: Sequence[str]) -> Carrier:
        """Return what takes a state to ranks of ``plan`` on ``nodes``, one for each.

        Raises `UserError` where some of it is nowhere any more.
        """
        ...

    def hold(self, parts: Sequence[Part]) -> list[Part]:
        """Have parts outlive the processes that made them; returns where they are from then on.

        Raises OSError where a process has gone.
        """
        ...

    def drop(self, parts: Iterable[Part]) -> None:
        """Let go of parts that were held, or of copies that were made."""
        ...

    def spread(self, parts: Parts) -> Future[Parts | None]:
        """Have a snapshot that is held outlive the loss of a node too.

        The future gives it with the copies that this takes, None where the snapshot was overtaken
        by the next ones meanwhile.
        """
        ...

    def close(self) -> None:
        """Let go of what the engine holds."""
        ...
