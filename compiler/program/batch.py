"""The batch: the leading dimension of the graph inputs, followed through the ops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensoropt.compiler.program.graph import Argument, Graph, Op

__all__ = ["Batch", "factor_of", "follow", "follow_batch"]


@dataclass
class Batch:
    """The dimension of each value, and the factor of each op, that is the batch."""

    dims: dict[int, int] = field(default_factory=dict)
    factors: dict[int, int] = field(default_factory=dict)


def follow_batch(graph: Graph) -> Batch:
    """Return the batch of every value and op that has one; linear in the operands."""
    batch = Batch()
    for node in graph.nodes:
        if isinstance(node, Argument) and node.is_fed:
            info = graph.values[node.results[0]].info
            if info is not None and info.rank:
                batch.dims[node.results[0]] = 0
    return follow(graph, batch)


def follow(graph: Graph, batch: Batch) -> Batch:
    """Follow ``batch`` through all ops that it reaches, and return it; linear in the operands."""
    for index, node in enumerate(graph.nodes):
        if isinstance(node, Op) and not node.constant:
            _follow(index, node, batch)
    return batch


def _follow(index: int, node: Op, batch: Batch) -> None:
    factor = factor_of(node, batch.dims)
    if factor is None:
        return
    batch.factors[index] = factor
    for value, dims in zip(node.results, node.rule.results, strict=True):
        if factor in dims:
            batch.dims[value] = dims.index(factor)


def factor_of(node: Op, dims: Mapping[int, int], *, merged: bool = False) -> int | None:
    """Return the factor along which the first operand that is in ``dims`` has that dimension.

    If the dimension merges samples with heads, that is the factor of the samples, with ``merged``
    the one of the heads.
    """
    rule = node.rule
    for number, (value, factors) in enumerate(zip(node.operands, rule.operands, strict=False)):
        dim = None if value is None else dims.get(value)
        if dim is not None and dim < len(factors) and factors[dim] is not None:
            return rule.inner_factor(number, dim) if merged else factors[dim]
    return None
