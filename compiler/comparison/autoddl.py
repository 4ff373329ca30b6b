"""Coordinate descent with restarts, as in AutoDDL (arXiv 2301.06813, its search).

A coordinate is a layer (``layers.py``). A sweep visits the layers in random order and gives each
what is best while all others stay; sweeps end when none helps. The first descent starts from data
parallelism, the others from random assignments. Mesh shapes are searched too: the search runs on
each, and the best of all is taken.

A step is a min-plus elimination of one layer, O(n K^2) where the layer is a chain of n nodes of K
options; a sweep takes one per layer, less those that met the same layer with the same
neighbours before. Nothing bounds the number of sweeps but that each gains.
"""

from __future__ import annotations

import numpy as np

from tensoropt.compiler.comparison.blocks import Block, blocks_of
from tensoropt.compiler.comparison.case import Assignment, Case, Limits, collect
from tensoropt.compiler.comparison.layers import layers_of
from tensoropt.compiler.comparison.starts import starts
from tensoropt.compiler.search.problem.problem import TableFrontier

__all__ = ["RESTARTS", "descend", "search"]

RESTARTS = 10

# Gains below this part of a layer's time are rounding; following them could go in circles.
_LEAST_GAIN = 1e-12


def search(case: Case, limits: Limits) -> TableFrontier:
    """Return the fastest of :data:`RESTARTS` local minima; the same for the same seed."""
    blocks = blocks_of(case.problem, layers_of(case))
    rng = np.random.default_rng(limits.seed)
    ends = [descend(blocks, start, rng) for start in starts(case, limits.seed, RESTARTS)]
    best = min(ends, key=lambda assignment: case.problem.cost(assignment).time)
    return collect(case.problem, [best])


def descend(blocks: list[Block], start: Assignment, rng: np.random.Generator) -> Assignment:
    """Return an assignment that no change of a single block improves."""
    assignment = start.copy()
    while any([_improve(blocks[b], assignment) for b in rng.permutation(len(blocks))]):
        pass
    return assignment


def _improve(block: Block, assignment: Assignment) -> bool:
    """Give ``block`` its best options, in place; say whether that gained anything."""
    best, now = block.best(assignment), assignment[block.nodes]
    if np.array_equal(best, now):
        return False
    gained = block.time_s(best, assignment) < block.time_s(now, assignment) * (1 - _LEAST_GAIN)
    if gained:
        assignment[block.nodes] = best
    return gained
