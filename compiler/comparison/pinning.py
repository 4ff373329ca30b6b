"""A whole assignment from a hand-made scheme: some nodes decided, the others chosen best."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from tensoropt.compiler.comparison.case import Assignment
from tensoropt.compiler.comparison.random_search import agreeing
from tensoropt.compiler.search.engine.ft import solve_min_time
from tensoropt.compiler.search.problem.problem import EdgeTable, Floats, NodeTable, Problem
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["Wish", "fastest_with", "furthest", "subsets", "wished"]

Wish = Mapping[int, int]
"""Per mesh axis, the factor of an op that it splits; axes left out split nothing."""


def fastest_with(problem: Problem, pins: Mapping[int, int]) -> Assignment:
    """Return the fastest assignment in which node ``i`` has option ``pins[i]``.

    A pin that others rule out, given before it or in the tables, is left out. Raises
    :class:`UserError` when no assignment is allowed.
    """
    pins = agreeing(problem, pins)
    assignment = solve_min_time(_pinned(problem, pins)).assignment.copy()
    assignment[list(pins)] = list(pins.values())
    return assignment


def _pinned(problem: Problem, pins: Mapping[int, int]) -> Problem:
    """Return the times of the problem, pinned nodes with the one option that is left."""
    kept: dict[tuple[int, int, int], Floats] = {}  # equal tables stay one and the same

    def times_s(table: NodeTable, *ends: int) -> Floats:
        left = [pins.get(end, -1) for end in ends]
        key = (id(table.time_s), left[0], left[-1])
        if key not in kept:
            at = tuple(slice(None) if k < 0 else slice(k, k + 1) for k in left)
            kept[key] = np.ascontiguousarray(table.time_s[at])
        return kept[key]

    nodes = [NodeTable(times_s(node, index)) for index, node in enumerate(problem.nodes)]
    edges = [EdgeTable(e.a, e.b, times_s(e, e.a, e.b)) for e in problem.edges]
    return Problem(nodes, edges)


def wished(tables: MeshTables, node: int, wishes: Sequence[Wish]) -> int | None:
    """Return the number of the first option of an op that splits as one of ``wishes`` says.

    None when its rule and the pins offer none of them, as when a size does not divide.
    """
    axes = tables.mesh.axes
    offered = {option.roles: number for number, option in enumerate(tables.choices(node))}
    for wish in wishes:
        number = offered.get(tuple(wish.get(axis) for axis in axes))
        if number is not None:
            return number
    return None


def furthest(mesh: Mesh, factor: int) -> list[Wish]:
    """Return the ways to split ``factor`` alone, over most ranks first, at last not at all."""
    return [dict.fromkeys(axes, factor) for axes in subsets(mesh)]


def subsets(mesh: Mesh) -> list[tuple[int, ...]]:
    """Return every set of mesh axes, the one with most ranks first."""
    counts = range(len(mesh.axes) + 1)
    every = (axes for n in counts for axes in itertools.combinations(mesh.axes, n))
    return sorted(every, key=lambda axes: (-mesh.extent(axes), axes))
