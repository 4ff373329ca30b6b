"""Matrix products of a graph, with parameters or of two activations, and attention heads."""

from __future__ import annotations

from tensoropt.compiler.program.batch import follow_batch
from tensoropt.compiler.program.graph import Graph, Node, Op

__all__ = [
    "attention_heads",
    "has_attention",
    "heads_of",
    "is_attention",
    "is_linear",
    "parameters",
]

_ATTENTION = frozenset(
    {"Attention"} | {f"com.microsoft.{kind}Attention" for kind in ("", "MultiHead", "GroupQuery")}
)
_WHOLE = frozenset(("tensoropt.Attention", "tensoropt.BlockedAttention"))
_HEADS = 1
"""The factor over heads in the rules of these ops."""
_PRODUCTS = frozenset({"MatMul", "Gemm", "com.microsoft.FusedMatMul"})
_MATRIX = 2
"""The last dimensions of a product: rows and columns."""


def has_attention(graph: Graph) -> bool:
    """Say if two values that both depend on the graph inputs are multiplied as matrices."""
    return any(is_attention(graph, node) for node in graph.nodes)


def is_attention(graph: Graph, node: Node) -> bool:
    """Say if an op is a matrix product of two values that are no parameters, or two of these."""
    return _is_whole(node) or (_is_product(node) and not parameters(graph, node))


def is_linear(graph: Graph, node: Node) -> bool:
    """Say if an op is a matrix product of a value with parameters."""
    return _is_product(node) and len(parameters(graph, node)) == 1


def parameters(graph: Graph, node: Node) -> list[int]:
    """Return the positions of the parameters among the two operands of a product."""
    values = [value for value in node.operands[:2] if value is not None]
    return [number for number, value in enumerate(values) if value in graph.storage.weights]


def heads_of(node: Op, batch: int | None) -> int | None:
    """Return the last factor, except the batch, of both operands and the result of a product.

    If all queries read one head of keys, the factor of the queries alone. If a dimension merges the
    batch with heads, the factor of the heads.
    """
    left, right, *_ = node.rule.operands
    result = len(node.rule.operands)
    inner = [node.rule.inner_factor(result, d) for d in range(len(node.rule.results[0]) - _MATRIX)]
    merged = [factor for factor in inner if factor not in node.rule.results[0]]
    if merged:
        return merged[-1]
    outer = [f for f in node.rule.results[0][:-_MATRIX] if f in left and f not in (None, batch)]
    heads = [factor for factor in outer if factor in right] or outer
    return heads[-1] if heads else None


def attention_heads(graph: Graph) -> dict[int, int]:
    """Return the factor over heads of each product of two activations, and of each op that is a
    whole attention."""
    batch, found = follow_batch(graph), dict[int, int]()
    for index, node in enumerate(graph.nodes):
        if not isinstance(node, Op):
            continue
        whole = node.info.name in _ATTENTION and len(node.rule.factors) > _HEADS
        if whole or is_attention(graph, node):
            factor = _HEADS if whole else heads_of(node, batch.factors.get(index))
            if factor is not None:
                found[index] = factor
    return found


def _is_whole(node: Node) -> bool:
    """Say if an op of ours is a whole attention."""
    if not isinstance(node, Op) or node.follows is not None:
        return False
    return node.info.name in _WHOLE


def _is_product(node: Node) -> bool:
    if not isinstance(node, Op) or node.constant or node.follows is not None:
        return False
    return node.info.name in _PRODUCTS
