"""Where each tensor of the state lies in a rank's block: the same on every rank of a plan."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["Place", "arrays_in", "places_of", "size_of", "stamp_in", "stamped_size_of"]

_ALIGNMENT = 256  # bytes: what kernels of a device expect; more than a cache line


@dataclass(frozen=True)
class Place:
    """An array of ``shape`` that starts at byte ``start``."""

    start: int
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def places_of(plan: TrainingPlan) -> Mapping[str, Place]:
    """Return the places of a rank's part of each tensor, by name, in the order of the block."""
    places, start = {}, 0
    for state in plan.state:
        tensor = state.tensor
        place = Place(start, tuple(tensor.local_shape()), dtype_of(tensor.dtype))
        places[state.name] = place
        start += -(-place.nbytes // _ALIGNMENT) * _ALIGNMENT
    return places


def size_of(plan: TrainingPlan) -> int:
    """Return how many bytes a rank's state takes in a block."""
    return max((place.start + place.nbytes for place in places_of(plan).values()), default=0)


def stamped_size_of(plan: TrainingPlan) -> int:
    """Return how many bytes it takes with a stamp behind it."""
    return -(-size_of(plan) // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT


def stamp_in(memory: mmap.mmap) -> Array:
    """Return the stamp of a block: the step whose state it has, -1 while that is written."""
    return np.frombuffer(memory, np.int64, 1, len(memory) - _ALIGNMENT)


def arrays_in(memory: mmap.mmap, plan: TrainingPlan) -> Mapping[str, Array]:
    """Return a rank's state in a block, by tensor; arrays that can be read only if it is so."""
    return {
        name: np.frombuffer(memory, place.dtype, math.prod(place.shape), place.start).reshape(
            place.shape
        )
        for name, place in places_of(plan).items()
    }
