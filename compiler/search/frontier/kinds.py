"""Kinds of splits of an op by their common names: batch, sequence, heads, column and row."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

from tensoropt.compiler.program.attention import attention_heads
from tensoropt.compiler.program.batch import Batch, follow, follow_batch
from tensoropt.compiler.program.graph import Argument, Graph, Op

__all__ = ["KINDS", "PARTIAL", "REPLICATE"]

REPLICATE = "replicate"
PARTIAL = "partial"

_SEQUENCE_RANKS = (2, 3)
"""Ranks of inputs with a sequence, `b s` or `b s h`: images have channels in that dimension."""


def _sequence(graph: Graph) -> Mapping[int, int]:
    """Follow the second dimension of the inputs with a sequence."""
    found = Batch()
    for node in graph.nodes:
        if isinstance(node, Argument) and node.is_fed:
            info = graph.values[node.results[0]].info
            if info is not None and info.rank in _SEQUENCE_RANKS:
                found.dims[node.results[0]] = 1
    return follow(graph, found).factors


_FactorOf = Callable[[Op, int], int | None]


def _of_weights(graph: Graph, factor_of: _FactorOf) -> Iterator[tuple[int, int]]:
    """Yield the factor of each op with weights, by ``factor_of`` for the first weight matrix."""
    for index, node in enumerate(graph.nodes):
        if not isinstance(node, Op) or node.constant:
            continue
        weights = [
            number
            for number, (value, dims) in enumerate(
                zip(node.operands, node.rule.operands, strict=False)
            )
            if value in graph.storage.weights and len(dims) > 1
        ]
        factor = factor_of(node, weights[0]) if weights else None
        if factor is not None:
            yield index, factor


def _column_of(node: Op, weight: int) -> int | None:
    """Return the last factor of the weight that the result has and no other operand has.

    These are output features, output channels, the width of an embedding. A bias does not count.
    """
    own, others = node.rule.operands[weight], node.rule.operands[:weight]
    others += node.rule.operands[weight + 1 : weight + 2] if not weight else ()
    read = {factor for dims in others for factor in dims}
    found = [f for f in own if f is not None and f in node.rule.results[0] and f not in read]
    return found[-1] if found else None


def _row_of(node: Op, weight: int) -> int | None:
    """Return the factor of the weight that is summed over.

    These are input features, input channels, the words of a vocabulary.
    """
    factors, results = node.rule.factors, node.rule.results[0]
    own = [f for f in node.rule.operands[weight] if f is not None and f not in results]
    summed = [f for f in own if factors[f].reduction is not None]
    return summed[0] if summed else None


def _heads(graph: Graph) -> Mapping[int, int]:
    """Follow the heads of every attention both ways, through all ops with this factor.

    A product with weights ends the walk: its columns make the heads, or its rows read them.
    """
    found: dict[int, int] = {}
    todo = deque(attention_heads(graph).items())
    while todo:
        index, factor = todo.popleft()
        if index in found:
            continue
        found[index] = factor
        for value, dim in _runs_along(graph, index, factor):
            todo += (more for more in _along(graph, value, dim) if more[0] not in found)
    return found


def _runs_along(graph: Graph, index: int, factor: int) -> Iterator[tuple[int, int]]:
    """Yield the values that an op reads or makes along ``factor``, and their dimension."""
    node = graph.op(index)
    for tensor, value in enumerate((*node.operands, *node.results)):
        dim = node.rule.dim_of(tensor, factor)
        if value is not None and dim is not None and value not in graph.storage.weights:
            yield value, dim


def _along(graph: Graph, value: int, dim: int) -> Iterator[tuple[int, int]]:
    """Yield the ops around a value, and the factor along which each has dimension ``dim``."""
    own = graph.values[value]
    for index, number in ((own.producer, own.index), *own.uses):
        node = graph.nodes[index]
        if isinstance(node, Op) and not node.constant:
            first = len(node.rule.operands) if index == own.producer else 0
            factor = node.rule.inner_factor(first + number, dim)
            if factor is not None:
                yield index, factor


KINDS: Mapping[str, Callable[[Graph], Mapping[int, int]]] = {
    "batch": lambda graph: follow_batch(graph).factors,
    "sequence": _sequence,
    "heads": _heads,
    "column": lambda graph: dict(_of_weights(graph, _column_of)),
    "row": lambda graph: dict(_of_weights(graph, _row_of)),
}
"""Returns the factor of each op that is of a kind, in time linear in the operands of a graph."""
