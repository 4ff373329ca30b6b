"""Interfaces of the memory of a rank's state, and of access to another generation's state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tensoropt.elastic.generation.boxes import Piece
from tensoropt.runtime.device.provider import PlacedArray
from tensoropt.runtime.support.arena import Arena, Block
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["Move", "Source", "StateMemory", "Way"]

Way = Literal["memory", "device", "host", "file"]
"""Path by which state reached a rank, from fast to slow: through the memory in which CPU ranks
compute, from device to device, through a copy of a device's state in host memory, from a file."""


@dataclass(frozen=True)
class Move:
    """A box of one tensor that a rank copies from another's part."""

    name: str
    piece: Piece


class Source(Protocol):
    """The blocks of a generation, opened by one rank of another; some may be on other nodes.

    ``why`` is the reason if blocks on a device are read through host memory, else None.
    """

    @property
    def moved_by(self) -> Way: ...

    @property
    def why(self) -> str | None: ...

    def distance(self, holder: int) -> float:
        """Return the distance of a rank's memory, infinite if its block is on another node."""

    def prepare(self, moves: Sequence[Move], threads: int) -> Callable[[], None]:
        """Return a function that copies boxes into this rank's state; call it once, when the blocks
        no longer change.

        CPU copies use ``threads`` threads. All work that can precede the copies is done here. The
        returned function raises `UserError` if the data read may not be the state.
        """

    def close(self) -> None:
        """Release the blocks."""


class StateMemory(Protocol):
    """The memory of one rank's state."""

    def arrays(self) -> Mapping[str, PlacedArray]:
        """Return the arrays that the rank computes with, by tensor."""

    def block(self) -> Block:
        """Return the block through which other ranks read the state."""

    def publish(self) -> None:
        """Copy the state to host memory, for ranks that cannot read the device's memory."""

    def open(self, blocks: Sequence[Block | None], plan: TrainingPlan) -> Source:
        """Return a source over other ranks' state, one block per rank. Raises `UserError`."""

    def arena(self, name: str, size: int) -> Arena:
        """Return host memory; a copy of the state may be stored at its start."""

    def save(self, names: Iterable[str], into: Mapping[str, Array]) -> None:
        """Copy tensors into arrays of an `arena`, and wait; from any thread, one at a time."""
