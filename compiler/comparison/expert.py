"""Splits that experts choose by hand: Megatron-LM for transformers, one weird trick for CNNs.

Megatron-LM (arXiv 1909.08053, section 3): of two products in a row the first splits its columns,
the second its rows, so that only the second needs an all-reduce; attention splits its heads, an
embedding its vocabulary. The minor mesh axes do so, the major ones split the batch; every division
of the axes is tried. One weird trick (arXiv 1404.5997): convolutions split the batch, fully
connected layers their columns. These ops are pinned; the ops between them are chosen best. Linear
in the operands of the graph and one min-plus elimination of the free choices, for each division.
"""

from __future__ import annotations

from tensoropt.compiler.comparison.case import Case, Limits, collect
from tensoropt.compiler.comparison.megatron import model_factors, output_factor
from tensoropt.compiler.comparison.pinning import Wish, fastest_with, furthest, wished
from tensoropt.compiler.program.attention import has_attention, is_linear
from tensoropt.compiler.program.batch import Batch, follow_batch
from tensoropt.compiler.program.graph import Op
from tensoropt.compiler.search.problem.problem import TableFrontier
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.support.errors import UserError

__all__ = ["search"]

Wishes = dict[int, list[Wish]]
"""Per op that an expert decides, how to split it: the first that its rule offers."""


def search(case: Case, limits: Limits) -> TableFrontier:
    """Return the assignments of the scheme that fits the model, one per division of the mesh axes.

    Raises :class:`UserError` for a model with nothing that either scheme speaks of.
    """
    assert case.tables is not None
    schemes = _schemes(case.tables)
    if not any(schemes):
        raise UserError(
            "--search expert: no scheme fits the model, expected a convolution, attention, or a "
            "product with or an embedding in parameters, got: none"
        )
    pins = [_pins(case.tables, wishes) for wishes in schemes]
    return collect(case.problem, [fastest_with(case.problem, pin) for pin in pins])


def _schemes(tables: MeshTables) -> list[Wishes]:
    batch, graph = follow_batch(tables.graph), tables.graph
    convolves = any(isinstance(node, Op) and node.info.name == "Conv" for node in graph.nodes)
    if convolves and not has_attention(graph):
        return [_one_weird_trick(tables, batch)]
    return [_megatron(tables, batch, first) for first in tables.mesh.axes]


def _one_weird_trick(tables: MeshTables, batch: Batch) -> Wishes:
    """Split the batch of convolutions and the columns of products, over all axes."""
    wishes: Wishes = {}
    for index, node in enumerate(tables.graph.nodes):
        if not isinstance(node, Op):
            continue
        if node.info.name == "Conv" and index in batch.factors:
            wishes[index] = furthest(tables.mesh, batch.factors[index])
        elif is_linear(tables.graph, node):
            columns = output_factor(tables.graph, node)
            wishes[index] = [] if columns is None else furthest(tables.mesh, columns)
    return wishes


def _megatron(tables: MeshTables, batch: Batch, first: int) -> Wishes:
    """Split the batch over the axes before ``first``, and columns, rows or heads over the rest."""
    wishes: Wishes = {}
    for index, factor in model_factors(tables.graph).items():
        data: Wish = {}
        if index in batch.factors:
            data = dict.fromkeys(range(first), batch.factors[index])
        model = dict.fromkeys(tables.mesh.axes[first:], factor)
        wishes[index] = [{**data, **model}, model, data]
    return wishes


def _pins(tables: MeshTables, wishes: Wishes) -> dict[int, int]:
    """Return the options wished for, by the position of their node in the problem."""
    pins: dict[int, int] = {}
    for position, index in enumerate(tables.leaders):
        number = wished(tables, index, wishes[index]) if index in wishes else None
        if number is not None:
            pins[position] = number
    return pins
