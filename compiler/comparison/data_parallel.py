"""Data parallelism: every op splits its batch, over as many ranks as that divides by.

The batch is the leading dimension of the graph inputs, followed through the factors of the rules.
An op runs whole on every rank if its batch cannot be split. Ops without a batch, and the layouts of
shared parameters and copies, are chosen best for the rest. Linear in the operands of the graph, and
one min-plus elimination of the free choices.
"""

from __future__ import annotations

from tensoropt.compiler.comparison.case import Assignment, Case, Limits, collect
from tensoropt.compiler.comparison.pinning import fastest_with, furthest, subsets, wished
from tensoropt.compiler.program.batch import Batch, follow_batch
from tensoropt.compiler.program.graph import Argument, Op
from tensoropt.compiler.search.problem.problem import Problem, TableFrontier
from tensoropt.compiler.search.problem.tables import MeshTables

__all__ = ["data_parallel_choice", "search"]


def search(case: Case, limits: Limits) -> TableFrontier:
    """Return the data-parallel assignment of a model."""
    assert case.tables is not None
    return collect(case.problem, [data_parallel_choice(case.problem, case.tables)])


def data_parallel_choice(problem: Problem, tables: MeshTables) -> Assignment:
    """Return the assignment that splits the batch everywhere; ``problem`` is that of ``tables``."""
    batch = follow_batch(tables.graph)
    pins: dict[int, int] = {}
    for position, index in enumerate(tables.leaders):
        number = _pin(tables, index, batch)
        if number is not None:
            pins[position] = number
    return fastest_with(problem, pins)


def _pin(tables: MeshTables, index: int, batch: Batch) -> int | None:
    """Return the number of the option that splits the batch furthest; None without a batch."""
    node = tables.graph.nodes[index]
    if isinstance(node, Op):
        if index not in batch.factors:
            return None
        return wished(tables, index, furthest(tables.mesh, batch.factors[index]))
    value = node.results[0] if isinstance(node, Argument) else node.operands[0]
    if value is None or value not in batch.dims:
        return None
    return _stored(tables, index, batch.dims[value])


def _stored(tables: MeshTables, index: int, dim: int) -> int | None:
    """Return the option of an argument or result that is split along ``dim`` alone the furthest."""
    node = tables.graph.nodes[index]
    found: dict[tuple[int, ...], int] = {}
    for number, option in enumerate(tables.choices(index)):
        (layout,) = option.results if isinstance(node, Argument) else option.operands
        axes = layout.axes_splitting(dim)
        if all(p.is_replicate for a, p in enumerate(layout.placements) if a not in axes):
            found[axes] = number
    return next((found[axes] for axes in subsets(tables.mesh) if axes in found), None)
