"""Which factor of which op Megatron-LM splits, read from the graph alone.

Walking the ops in order, a value is *divided* along one dimension or not at all. A product of
parameters with a value divided along what it sums over splits its rows, and its result is whole;
any other product splits its columns, and its result is divided along them.
"""

from __future__ import annotations

from tensoropt.compiler.search.methods.batch import factor_of, follow_batch
from tensoropt.compiler.search.problem.graph import Graph, Node

__all__ = ["attention_heads", "has_attention", "is_linear", "model_factors", "output_factor"]

_ATTENTION = frozenset(
    {"Attention"} | {f"com.microsoft.{kind}Attention" for kind in ("", "MultiHead", "GroupQuery")}
)
_HEADS = 1
"""Which factor of the rules of these is over heads."""
_PRODUCTS = frozenset({"MatMul", "Gemm", "com.microsoft.FusedMatMul"})


def has_attention(graph: Graph) -> bool:
    """Say whether two values that both depend on the graph inputs are multiplied as matrices."""
    return any(_is_attention(graph, node) for node in graph.nodes)


def is_linear(graph: Graph, node: Node) -> bool:
    """Say whether an op is a matrix product of a value with parameters."""
    return _is_product(node) and len(_constants(graph, node)) == 1


def output_factor(graph: Graph, node: Node) -> int | None:
    """Return the factor along which only the parameters and the result of a product run."""
    assert node.rule is not None
    (parameters,) = _constants(graph, node)
    value, weights = node.rule.operands[1 - parameters], node.rule.operands[parameters]
    own = [f for f in node.rule.results[0] if f is not None and f in weights and f not in value]
    return own[-1] if own else None


def model_factors(graph: Graph) -> dict[int, int]:
    """Return the factor that Megatron splits, by node, of products, attention and embeddings."""
    divided: dict[int, int] = {}
    batch = follow_batch(graph)
    factors: dict[int, int] = {}
    for index, node in enumerate(graph.nodes):
        if node.kind != "op" or node.constant or node.rule is None:
            continue
        factor = _factor(graph, node, divided, batch.factors.get(index))
        if factor is not None and _is_decided(graph, node):
            factors[index] = factor
        _divide(node, factor, divided)
    return factors


def _factor(graph: Graph, node: Node, divided: dict[int, int], batch: int | None) -> int | None:
    """Return the factor of ``node`` that is split, that of a divided operand if nothing else."""
    assert node.rule is not None
    through = factor_of(node, divided)
    if is_linear(graph, node):
        rows = through is not None and node.rule.factors[through].reduction is not None
        return through if rows else output_factor(graph, node)
    if _is_attention(graph, node):
        return _heads(node, batch)
    if _is_embedding(graph, node):
        return node.rule.operands[0][0]
    return through


def _is_decided(graph: Graph, node: Node) -> bool:
    decides = (is_linear, _is_attention, _is_embedding)
    return any(is_kind(graph, node) for is_kind in decides)


def _divide(node: Node, factor: int | None, divided: dict[int, int]) -> None:
    assert node.rule is not None
    for value, dims in zip(node.results, node.rule.results, strict=True):
        if factor is not None and factor in dims:
            divided[value] = dims.index(factor)


def _is_product(node: Node) -> bool:
    if node.info is None or node.constant or node.follows is not None:
        return False
    return node.info.name in _PRODUCTS


def _constants(graph: Graph, node: Node) -> list[int]:
    """Return which of the two factors of a product are parameters."""
    values = [value for value in node.operands[:2] if value is not None]
    return [number for number, value in enumerate(values) if graph.is_weight(value)]


def _is_attention(graph: Graph, node: Node) -> bool:
    return _is_product(node) and not _constants(graph, node)


def _heads(node: Node, batch: int | None) -> int | None:
    """Return the last factor, but for the batch, that both operands and the result run along."""
    assert node.rule is not None
    left, right, *_ = node.rule.operands
    shared = [f for f in node.rule.results[0] if f is not None and f in left and f in right]
    heads = [factor for factor in shared if factor != batch]
    return heads[-1] if heads else None


def attention_heads(graph: Graph) -> dict[int, int]:
    """Return the factor over heads of each product of two activations, and of each op that is an
    attention as a whole."""
    batch, found = follow_batch(graph), dict[int, int]()
    for index, node in enumerate(graph.nodes):
        whole = node.info is not None and node.info.name in _ATTENTION
        whole = whole and node.rule is not None and len(node.rule.factors) > _HEADS
        if whole or _is_attention(graph, node):
            factor = _HEADS if whole else _heads(node, batch.factors.get(index))
            if factor is not None:
                found[index] = factor
    return found


def _is_embedding(graph: Graph, node: Node) -> bool:
    """Say whether an op looks up rows of a parameter by what depends on the graph inputs."""
    if node.info is None or node.info.name != "Gather" or node.constant:
        return False
    table = node.operands[0]
    is_row = node.info.attribute("axis", 0) == 0
    return is_row and table is not None and graph.is_weight(table)
