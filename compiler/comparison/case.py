"""Input and output of a method: a case, its limits, and points by the tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.search.engine.control import Control
from tensoropt.compiler.search.problem.problem import (
    Problem,
    TableFrontier,
    TablePoint,
    nothing_allowed,
)

if TYPE_CHECKING:
    from tensoropt.compiler.search.problem.tables import MeshTables

__all__ = ["Assignment", "Case", "Limits", "collect"]

Assignment = NDArray[np.int32]
"""Per node of the problem, the number of its option."""


@dataclass(frozen=True)
class Case:
    """A problem, with the tables of the model and mesh that it was made from, if it has a model.

    Node ``i`` of the problem is node ``tables.leaders[i]`` of the graph; further nodes are copies
    of shared tensors.
    """

    problem: Problem
    tables: MeshTables | None = None


@dataclass(frozen=True)
class Limits:
    """Limits of a run. A method heeds the fields that its entry in the registry names.

    ``epsilon`` is as in ``solve_frontier``, ``memory_bytes`` the memory of one device. Only ``ft``
    heeds ``control``; other methods raise KeyboardInterrupt on Ctrl-C.
    """

    seed: int = 0
    epsilon: float = 0.0
    time_limit_s: float | None = None
    memory_bytes: float | None = None
    control: Control = field(default_factory=Control)


def collect(
    problem: Problem,
    assignments: Sequence[Assignment],
    *,
    epsilon: float = math.inf,
    time_epsilon: float | None = None,
) -> TableFrontier:
    """Return the points of those ``assignments`` that no other one beats, by the tables.

    Raises :class:`UserError` when none of them has a finite time.
    """
    points: list[TablePoint] = []
    for point in sorted(map(problem.cost, assignments), key=lambda p: (p.time, p.memory)):
        allowed = math.isfinite(point.time)
        if allowed and (not points or point.memory < points[-1].memory):
            points.append(point)
    if not points:
        raise nothing_allowed()
    is_bound = time_epsilon is not None
    return TableFrontier(points, epsilon, whole=is_bound, time_epsilon=time_epsilon or 0.0)
