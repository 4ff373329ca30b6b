"""The parts of a state, one per rank, and the pieces that ranks of another plan take from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tensoropt.elastic.generation.boxes import Piece, pieces_of
from tensoropt.runtime.support.arena import Block
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["Part", "Parts", "pieces_to_take"]


@dataclass(frozen=True)
class Part:
    """A rank's part: a block on a node ("" without a cluster)."""

    block: Block
    node: str = ""


@dataclass(frozen=True)
class Parts:
    """A state in the layouts of ``plan``, a folder: one part per rank.

    For a snapshot, ``step`` is the step after which it was taken. ``copies`` are parts by rank, on
    other nodes, of the boxes that only one node's ranks have.
    """

    plan: str
    parts: tuple[Part, ...]
    copies: Mapping[int, Part] = field(default_factory=dict)
    step: int | None = None


def pieces_to_take(
    held: TrainingPlan, wanted: TrainingPlan, rank: int, distances: Sequence[float]
) -> Iterator[tuple[str, Piece]]:
    """Yield (tensor, piece) for each box that ``rank`` of ``wanted`` takes from ranks of ``held``.

    ``distances`` has one entry per rank of ``held``. Raises `UserError` if the states differ.
    """
    given = {state.name: state.tensor for state in held.state}
    for state in wanted.state:
        tensor, theirs = state.tensor, given.get(state.name)
        if theirs is None or (theirs.dtype, theirs.shape) != (tensor.dtype, tensor.shape):
            raise UserError(f"'{state.name}' does not match {held.folder.name}")
        shape = [int(size) for size in tensor.shape]
        for piece in pieces_of(shape, rank, tensor.layout, theirs.layout, distances.__getitem__):
            yield state.name, piece
