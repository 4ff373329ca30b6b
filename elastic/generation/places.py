"""The layout of the state's tensors in a rank's block, identical on every rank of a stage."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["Place", "arrays_in", "places_of", "size_of", "stamp_in", "stamped_size_of"]

_ALIGNMENT = 256  # bytes: device kernels expect it; more than a cache line


@dataclass(frozen=True)
class Place:
    """An array of ``shape`` that starts at byte ``start``."""

    start: int
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def places_of(plan: TrainingPlan, rank: int) -> Mapping[str, Place]:
    """Return the place of a rank's part of each tensor, by name, in block order."""
    places, start = {}, 0
    for state in plan.state_of(rank):
        tensor = state.tensor
        place = Place(start, tuple(tensor.local_shape()), dtype_of(tensor.dtype))
        places[state.name] = place
        start += -(-place.nbytes // _ALIGNMENT) * _ALIGNMENT
    return places


def size_of(plan: TrainingPlan, rank: int) -> int:
    """Return the size of a rank's state in a block, in bytes."""
    return max((place.start + place.nbytes for place in places_of(plan, rank).values()), default=0)


def stamped_size_of(plan: TrainingPlan, rank: int) -> int:
    """Return the size of a rank's state with a stamp after it, in bytes."""
    return -(-size_of(plan, rank) // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT


def stamp_in(memory: mmap.mmap) -> Array:
    """Return the stamp of a block: the step of its state, -1 while the state is being written."""
    return np.frombuffer(memory, np.int64, 1, len(memory) - _ALIGNMENT)


def arrays_in(memory: mmap.mmap, plan: TrainingPlan, rank: int) -> Mapping[str, Array]:
    """Return a rank's state in its block, by tensor; read-only if the block is."""
    return {
        name: np.frombuffer(memory, place.dtype, math.prod(place.shape), place.start).reshape(
            place.shape
        )
        for name, place in places_of(plan, rank).items()
    }
