"""The interface between a coordinator and the engine that runs its ranks."""

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
"""The outcome of a generation: ``result``, the values of a `TrainResult`, or a line ``error``."""


class Host(Protocol):
    """The processes of one generation."""

    def begin(self) -> None:
        """Start them, after `facts` have been recorded for a later coordinator."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return the facts for `Engine.find`, as JSON."""
        ...

    def kill(self) -> None:
        """End all processes and release their resources; ignore any that have ended already."""
        ...


class Carrier(Protocol):
    """A transfer of state from the ranks that have it to the ranks of another generation."""

    orders: Sequence[Message]
    """One order per receiving rank: ``plan`` and ``blocks`` of the ranks that have the state, and
    the ``distances`` to them. All blocks are on the receiver's own node."""
    carried_bytes: int
    """Bytes copied between nodes."""

    def carry(self) -> None:
        """Copy the present state that each node's ranks need to that node. Raises `UserError`."""
        ...

    def close(self) -> None:
        """Release the copies, after all ranks have taken them or the transfer has failed."""
        ...


class Engine(Protocol):
    """Starts and finds the processes of generations, and transfers state between them."""

    name: str

    def address(self, before: str | None) -> str:
        """Return an address for a coordinator in this process: "@name" or "host:port".

        ``before`` is the address of the previous coordinator, None if there was none.
        """
        ...

    def devices(self) -> Sequence[str]:
        """Return the names of the present devices."""
        ...

    def start(
        self,
        job: GenerationJob,
        devices: Sequence[str],
        folder: Path,
        ended: Callable[[Outcome], None],
    ) -> Host:
        """Return a host that starts a rank on each of ``devices`` when its `begin` is called.

        ``folder`` is the job's folder; ``ended`` is called once. Raises `UserError` if the devices
        cannot be had.
        """
        ...

    def find(
        self, facts: Mapping[str, Any], folder: Path, ended: Callable[[Outcome], None]
    ) -> Host | None:
        """Return the processes that an earlier coordinator started, None if they have ended."""
        ...

    def carrier(self, parts: Parts, plan: str, nodes: Sequence[str]) -> Carrier:
        """Return a carrier of a state to the ranks of ``plan``, which are on ``nodes``.

        Raises `UserError` if some of the state is lost.
        """
        ...

    def hold(self, parts: Sequence[Part]) -> list[Part]:
        """Keep parts beyond the end of their processes; return the parts to use from then on.

        Raises OSError if a process has ended.
        """
        ...

    def drop(self, parts: Iterable[Part]) -> None:
        """Release parts returned by `hold`, or copies made by `spread`."""
        ...

    def spread(self, parts: Parts) -> Future[Parts | None]:
        """Copy a held snapshot so that it outlives the loss of a node.

        The future's result has the copies added; None if later snapshots overtook this one first.
        """
        ...

    def close(self) -> None:
        """Release the engine's resources."""
        ...
