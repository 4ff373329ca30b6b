"""What every search method is given and gives back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.search.engine.control import Control
from tensoropt.compiler.search.problem.problem import (
    NO_LINES,
    Lines,
    Problem,
    TablePoint,
    nothing_allowed,
)
from tensoropt.compiler.support.errors import UserError

if TYPE_CHECKING:
    from tensoropt.compiler.search.problem.tables import MeshTables

__all__ = ["Assignment", "Case", "DoesNotFitError", "Found", "Limits", "found"]

Assignment = NDArray[np.int32]
"""Per node of the problem, the number of its option."""


class DoesNotFitError(UserError):
    """No assignment on this mesh is within the memory limit; one on another may be."""


@dataclass(frozen=True)
class Case:
    """A problem, and the model and mesh it was made from where there is one.

    Node ``i`` of the problem is node ``tables.leaders[i]`` of the graph; further ones are copies
    of shared tensors.
    """

    problem: Problem
    tables: MeshTables | None = None


@dataclass(frozen=True)
class Limits:
    """How far to search; a method heeds what its entry in the registry says.

    ``epsilon`` is as in ``solve_frontier``, ``memory_bytes`` what one device may use, ``None`` for
    no limit. ``control``, ``known`` and ``lines`` are as in ``solve_frontier``; a method that does
    not heed ``control`` raises KeyboardInterrupt on Ctrl-C. ``search_memory_bytes`` is what the
    search may take beyond the tables it is given; 0 for a quarter of the machine's memory.
    """

    seed: int = 0
    epsilon: float = 0.0
    time_limit_s: float | None = None
    memory_bytes: float | None = None
    control: Control = field(default_factory=Control)
    known: Sequence[tuple[float, float]] = ()
    lines: Lines = field(default_factory=lambda: NO_LINES, repr=False)
    search_memory_bytes: float = 0.0


@dataclass(frozen=True, eq=False)
class Found:
    """Points sorted by time, none beaten by another in both time and memory.

    ``epsilon`` is the bound of a frontier, as in :class:`Frontier`, ``None`` where the points are
    not one. The first point takes at most ``1 + time_epsilon`` of the least time; ``None``: no
    bound is known. Both bounds hold for the costs of the tables. ``interrupted``: Ctrl-C ended the
    search, which has returned what it had; ``short_of_memory``: a part of it was given up.
    ``lines`` hold of every assignment.
    """

    points: list[TablePoint]
    epsilon: float | None = None
    time_epsilon: float | None = None
    interrupted: bool = False
    short_of_memory: bool = False
    lines: Lines = field(default_factory=lambda: NO_LINES, repr=False)


def found(
    problem: Problem,
    assignments: Sequence[Assignment],
    *,
    epsilon: float | None = None,
    time_epsilon: float | None = None,
) -> Found:
    """Cost ``assignments`` from the tables and keep those that no other one beats.

    Raises :class:`UserError` when none of them has a finite time.
    """
    points: list[TablePoint] = []
    for point in sorted(map(problem.cost, assignments), key=lambda p: (p.time, p.memory)):
        allowed = math.isfinite(point.time)
        if allowed and (not points or point.memory < points[-1].memory):
            points.append(point)
    if not points:
        raise nothing_allowed()
    return Found(points, epsilon, time_epsilon)
