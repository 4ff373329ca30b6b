"""Coordinate descent with restarts (AutoDDL, arXiv 2301.06813, section 5).

Meshes are searched one by one outside. Within one, layers are coordinates: a sweep visits them in
random order and gives each the option that is best while all others stay; sweeps end when none
helps. The first descent starts from data parallelism, the others from random choices.
"""

from __future__ import annotations

import numpy as np

from .neighbours import Neighbours
from .result import Case, Choice, Found, Limits, found
from .starts import starts

__all__ = ["RESTARTS", "descend", "search"]

RESTARTS = 10

# Gains below this part of a node's time are rounding; following them could go in circles.
_LEAST_GAIN = 1e-12


def search(case: Case, limits: Limits) -> Found:
    """Return the fastest of :data:`RESTARTS` local minima; the same for the same seed."""
    neighbours = Neighbours(case.problem)
    rng = np.random.default_rng(limits.seed)
    ends = [descend(neighbours, start, rng) for start in starts(case, limits.seed, RESTARTS)]
    best = min(ends, key=lambda choice: case.problem.cost(choice).time)
    return found(case.problem, [best])


def descend(neighbours: Neighbours, start: Choice, rng: np.random.Generator) -> Choice:
    """Return a choice that no change of a single node improves."""
    choice = start.copy()
    while any([_improve(neighbours, int(n), choice) for n in rng.permutation(len(choice))]):
        pass
    return choice


def _improve(neighbours: Neighbours, node: int, choice: Choice) -> bool:
    """Give ``node`` its best configuration, in place; say whether that gained anything."""
    times = neighbours.times_s(node, choice)
    best = int(np.argmin(times))
    if not times[best] < times[choice[node]] * (1 - _LEAST_GAIN):
        return False
    choice[node] = best
    return True
