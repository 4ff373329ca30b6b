"""What a rank's state lies in, and how that of another generation is reached from there."""

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
"""How state came to a rank: by the memory in which CPU ranks have it, from device to device, by a
copy of a device's state in the host's memory, or from a file."""


@dataclass(frozen=True)
class Move:
    """A box of one tensor that a rank copies from another's part."""

    name: str
    piece: Piece


class Source(Protocol):
    """The blocks of a generation, as one rank of another reaches them; some may not be here.

    ``why`` says why some are reached by the host's memory although they are on a device.
    """

    @property
    def moved_by(self) -> Way: ...

    @property
    def why(self) -> str | None: ...

    def distance(self, holder: int) -> float:
        """Return how far the memory of a rank is, infinite where its block is not here."""

    def prepared(self, moves: Sequence[Move], threads: int) -> Callable[[], None]:
        """Return what copies boxes into this rank's state, once, when the blocks stand still.

        ``threads`` threads do it where threads do. All that can be settled before, is. The call
        raises `UserError` where what was read may not be the state.
        """

    def close(self) -> None:
        """Let go of the blocks."""


class StateMemory(Protocol):
    """The memory of one rank's state."""

    def arrays(self) -> Mapping[str, PlacedArray]:
        """Return what the rank computes with, by tensor."""

    def block(self) -> Block:
        """Return what others reach the state by."""

    def publish(self) -> None:
        """Have the state in the host's memory too, for ranks that cannot reach the device's."""

    def open(self, blocks: Sequence[Block | None], plan: TrainingPlan) -> Source:
        """Return the state of other ranks, one block each. Raises `UserError`."""

    def arena(self, name: str, size: int) -> Arena:
        """Return memory of the host, of which a copy of the state may take the beginning."""

    def save(self, names: Iterable[str], into: Mapping[str, Array]) -> None:
        """Copy tensors into arrays of such memory, and wait; from any thread, one at a time."""
