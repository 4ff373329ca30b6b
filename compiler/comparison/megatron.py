"""The factors of ops that Megatron-LM splits, read from the graph alone.

Walking the ops in order, a value is *divided* along one dimension or not at all. A product of
parameters with a value divided along the summed factor splits its rows, and its result is whole;
any other product splits its columns, and its result is divided along them.
"""

from __future__ import annotations

from tensoropt.compiler.program.attention import (
    heads_of,
    is_attention,
    is_linear,
    parameters,
)
from tensoropt.compiler.program.batch import factor_of, follow_batch
from tensoropt.compiler.program.graph import Graph, Op

__all__ = ["model_factors", "output_factor"]


def output_factor(graph: Graph, node: Op) -> int | None:
    """Return the factor along which only the parameters and the result of a product run."""
    (place,) = parameters(graph, node)
    value, weights = node.rule.operands[1 - place], node.rule.operands[place]
    own = [f for f in node.rule.results[0] if f is not None and f in weights and f not in value]
    return own[-1] if own else None


def model_factors(graph: Graph) -> dict[int, int]:
    """Return the factor that Megatron splits, by node, of products, attention and embeddings."""
    divided: dict[int, int] = {}
    batch = follow_batch(graph)
    factors: dict[int, int] = {}
    for index, node in enumerate(graph.nodes):
        if not isinstance(node, Op) or node.constant:
            continue
        factor = _factor(graph, node, divided, batch.factors.get(index))
        if factor is not None and _is_decided(graph, node):
            factors[index] = factor
        _divide(node, factor, divided)
    return factors


def _factor(graph: Graph, node: Op, divided: dict[int, int], batch: int | None) -> int | None:
    """Return the factor of ``node`` that is split, by default the factor of a divided operand."""
    through = factor_of(node, divided, merged=True)
    if is_linear(graph, node):
        rows = through is not None and node.rule.factors[through].reduction is not None
        return through if rows else output_factor(graph, node)
    if is_attention(graph, node):
        return heads_of(node, batch)
    if _is_embedding(graph, node):
        return node.rule.operands[0][0]
    return through


def _is_decided(graph: Graph, node: Op) -> bool:
    decides = (is_linear, is_attention, _is_embedding)
    return any(is_kind(graph, node) for is_kind in decides)


def _divide(node: Op, factor: int | None, divided: dict[int, int]) -> None:
    for tensor, value in enumerate(node.results, len(node.operands)):
        dim = None if factor is None else node.rule.dim_of(tensor, factor)
        if dim is not None:
            divided[value] = dim


def _is_embedding(graph: Graph, node: Op) -> bool:
    """Say if an op looks up rows of a parameter by indices that depend on the graph inputs."""
    if node.info.name != "Gather" or node.constant:
        return False
    return node.info.attribute("axis", 0) == 0 and node.operands[0] in graph.storage.weights
