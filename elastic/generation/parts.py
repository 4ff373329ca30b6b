"""The parts of a state, one per rank, and the pieces that ranks of another plan take from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tensoropt.elastic.generation.boxes import Piece, pieces_of
from tensoropt.runtime.plan.plan import Tensor
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
    given = {state.name: state for state in held.state}
    for state in wanted.state_of(rank):
        tensor, source = state.tensor, given.get(state.name)
        if source is None or not _is_same(tensor, source.tensor):
            raise UserError(f"'{state.name}' does not match {held.folder.name}")
        shape, owners = [int(size) for size in tensor.shape], held.owners(source)
        layouts = tensor.layout, source.tensor.layout
        far = distances[owners.start : owners.stop].__getitem__
        for piece in pieces_of(shape, wanted.place(rank), *layouts, far):
            yield state.name, replace(piece, holder=owners[piece.holder])


def _is_same(tensor: Tensor, other: Tensor) -> bool:
    return (tensor.dtype, tensor.shape) == (other.dtype, other.shape)
