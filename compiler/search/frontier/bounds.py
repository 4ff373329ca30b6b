"""The bound of the known plans on a mesh, from the proofs of all its runs.

A plan that is better than all known plans is in a corner between two neighbours: faster than one
and leaner than the other. Each corner takes the best proof among lines and frontiers.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.compiler.search.problem.problem import ROUNDING, Floats, Lines, TablePoint

__all__ = ["NOTHING", "Claim", "corners", "errors_by_lines", "proven"]

NOTHING = sys.float_info.epsilon
"""Stands for zero seconds or bytes in a division."""


@dataclass(frozen=True)
class Claim:
    """Every plan is within ``1 + epsilon`` of one of ``points``, or of a plan that is known."""

    points: Sequence[TablePoint]
    epsilon: float


def proven(
    plans: Sequence[tuple[float, float]], claims: Sequence[Claim], lines: Lines, more_s: float
) -> float | None:
    """Return how much more, relatively, the best of ``plans`` may take than any plan of a mesh.

    ``plans`` are seconds and bytes of programs. ``claims`` and ``lines`` are about costs by the
    tables, to which every program adds ``more_s``. ``None`` if nothing is proven.
    """
    time_s, memory = corners(plans)
    least = errors_by_lines(time_s, memory, lines, more_s)
    for claim in claims:
        np.minimum(least, _by_claim(time_s, memory, claim, more_s), out=least)
    bound = float(least.max())
    return None if math.isinf(bound) else bound if bound > ROUNDING else 0.0


def corners(plans: Sequence[tuple[float, float]]) -> tuple[Floats, Floats]:
    """Return the limits of time and memory of any plan that no plan of ``plans`` matches.

    A corner has the time of its slower and the memory of its faster neighbour; infinity at the
    ends.
    """
    best: list[tuple[float, float]] = []
    for time_s, memory in sorted(plans):
        if not best or memory < best[-1][1]:
            best.append((time_s, memory))
    return (
        np.array([*(time_s for time_s, _ in best), math.inf]),
        np.array([math.inf, *(memory for _, memory in best)]),
    )


def errors_by_lines(time_s: Floats, memory: Floats, lines: Lines, more_s: float = 0.0) -> Floats:
    """Return per corner the least error that a line proves; linear in corners times lines.

    Every program adds ``more_s`` to the time by the tables.
    """
    a, b, least = (column[:, None] for column in lines[lines[:, 2] > 0].T)
    with np.errstate(invalid="ignore"):  # a line along one axis does not bound the other
        corner = np.where(a > 0, a * time_s, 0.0) + np.where(b > 0, b * memory, 0.0)
    errors: Floats = np.min(corner / (least + a * more_s) - 1, axis=0, initial=math.inf)
    return errors


def _by_claim(time_s: Floats, memory: Floats, claim: Claim, more_s: float) -> Floats:
    own_s = np.array([max(point.time + more_s, NOTHING) for point in claim.points])
    own = np.array([max(point.memory, NOTHING) for point in claim.points])
    ratio = np.minimum(time_s[:, None] / own_s, memory[:, None] / own).max(axis=1)
    factor = np.where(ratio < 1 + ROUNDING, 1.0, ratio)
    return (1 + claim.epsilon) * factor - 1
