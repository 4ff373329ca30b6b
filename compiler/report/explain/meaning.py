"""Labels for the dimensions of tensors: batch, heads, output features.

Labels start at dimensions of a known meaning (the batch of the inputs, the columns of a weight, the
heads of an attention product) and propagate along the factors of the sharding rules.
"""

from __future__ import annotations

from itertools import chain

from tensoropt.compiler.program.graph import Argument, Graph, Node, Op

__all__ = ["Meanings", "is_stacked", "matrix_of"]

_PRODUCTS = frozenset({"MatMul", "Gemm", "com.microsoft.FusedMatMul", "Einsum"})
# The meaning of the first dimension of a stacked weight, by the operator that reads it.
_STACKS = {
    **dict.fromkeys(("MatMul", "com.microsoft.MoE", "com.microsoft.QMoE"), "experts"),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), "directions"),
}
_SPATIAL = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
_COLUMNS, _ROWS = "output features", "input features"
_HEADS = "heads"


def matrix_of(graph: Graph, node: Node) -> int | None:
    """Return the operand of an op that is a weight matrix which it contracts or looks up, if any.

    Masks and biases do not count, as all their dimensions are dimensions of the result. Tables that
    no strategy splits, such as the angles of rotary embeddings, do not count either.
    """
    if not isinstance(node, Op) or node.constant:
        return None
    made = set(chain(*node.rule.results))
    for operand, (value, dims) in enumerate(zip(node.operands, node.rule.operands, strict=False)):
        info = None if value is None else graph.values[value].info
        if value is None or info is None or info.rank < 2 or value not in graph.storage.weights:
            continue
        if not any(factor is not None for factor in dims):
            continue
        sizes = zip(info.shape, dims, strict=False)
        if any(size != 1 and (f is None or f not in made) for size, f in sizes):
            return operand
    return None


def is_stacked(graph: Graph, node: Op, operand: int, dim: int) -> bool:
    """Return whether a dimension of a weight numbers the matrices of separate products."""
    value = node.operands[operand]
    info = None if value is None else graph.values[value].info
    if info is None or node.info.name not in _STACKS:
        return False
    return dim < info.rank - 2


class Meanings:
    """Known labels of the dimensions of values and of the factors of ops."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.dims: dict[tuple[int, int], str] = {}
        for node in graph.nodes:
            if isinstance(node, Argument):
                self._argument(node)
            elif isinstance(node, Op):
                self._op(node)
        for node in reversed(graph.nodes):
            if isinstance(node, Op) and not node.constant:
                self._back(node)

    def factor(self, node: Op, factor: int) -> str:
        """Return the label of a factor of an op; empty if it is not known."""
        found = [self.dims.get(place, "") for place in self._places(node, factor)]
        if _HEADS in found and matrix_of(self.graph, node) is None:
            return _HEADS
        return next((label for label in found if label), "")

    def is_attention(self, node: Node) -> bool:
        """Return whether an op multiplies activations by activations, as attention does."""
        if not isinstance(node, Op) or node.constant:
            return False
        if node.info.name.endswith("Attention"):
            return True
        given = [value for value in node.operands[:2] if value is not None]
        is_free = self.graph.storage.weights.isdisjoint(given)
        return node.info.name in _PRODUCTS and len(given) == 2 and is_free

    def _argument(self, node: Argument) -> None:
        value = node.results[0]
        info = self.graph.values[value].info
        if info is None or not node.is_fed or not info.rank:
            return
        self.dims[value, 0] = "batch"
        if info.rank == 2 and info.dtype.startswith("int"):
            self.dims[value, 1] = "sequence"
        if info.rank == 4:
            for dim, label in enumerate(("channels", "height", "width"), start=1):
                self.dims[value, dim] = label

    def _op(self, node: Op) -> None:
        matrix = matrix_of(self.graph, node)
        if matrix is not None and node.is_forward:
            self._weights(node, matrix)
        self._follow(node)
        if self.is_attention(node) and node.is_forward:
            self._attention(node)

    def _weights(self, node: Op, operand: int) -> None:
        """Label the dimensions of a weight matrix that have no label yet."""
        value, made = node.operands[operand], set(chain(*node.rule.results))
        assert value is not None
        convolves = "Conv" in node.info.name
        columns, rows = ("output channels", "input channels") if convolves else (_COLUMNS, _ROWS)
        if node.info.name == "Gather":
            columns, rows = "features", "vocabulary"
        others = self._read_factors(node, operand)
        for dim, factor in enumerate(node.rule.operands[operand]):
            if factor is None or (factor in others and factor in made):
                continue
            label = columns if factor in made else rows
            if is_stacked(self.graph, node, operand, dim):
                label = _STACKS[node.info.name]
            self.dims.setdefault((value, dim), label)

    def _read_factors(self, node: Op, skipped: int) -> set[int | None]:
        """Return the factors of the operands other than weights and operand ``skipped``."""
        pairs = zip(node.operands, node.rule.operands, strict=False)
        return {
            factor
            for operand, (value, dims) in enumerate(pairs)
            if operand != skipped and value is not None and value not in self.graph.storage.weights
            for factor in dims
        }

    def _follow(self, node: Op) -> None:
        """Label each dimension of the results with the label of its factor."""
        labels: dict[int, str] = {}
        for place, factor in self._operand_places(node):
            label = self.dims.get(place)
            if label:
                labels.setdefault(factor, label)
        for value, dims in zip(node.results, node.rule.results, strict=False):
            for dim, made in enumerate(dims):
                if made is not None and made in labels:
                    self.dims[value, dim] = _as_activation(labels[made])
            self._spatial(node, value)

    def _spatial(self, node: Op, value: int) -> None:
        info = self.graph.values[value].info
        if info is None or not node.info.name.endswith(("Conv", "Pool")):
            return
        for dim, label in enumerate(_SPATIAL.get(info.rank - 2, ()), start=2):
            self.dims.setdefault((value, dim), label)

    def _attention(self, node: Op) -> None:
        """Label the heads: the last factor that both operands and the result of a product have."""
        dims = node.rule.results[0]
        if node.info.name.endswith("Attention"):
            heads = [dims[1] if len(dims) == 4 else dims[-1]] if dims else []
        else:
            left, right, *_ = node.rule.operands
            heads = [factor for factor in dims if factor in left and factor in right][-1:]
        for factor in heads:
            if factor is None or self.factor(node, factor) == "batch":
                continue
            for place in self._places(node, factor):
                self.dims[place] = _HEADS

    def _back(self, node: Op) -> None:
        """Propagate the label of heads back to the op that splits features into heads."""
        if matrix_of(self.graph, node) is not None:
            return
        for value, dims in zip(node.results, node.rule.results, strict=False):
            for dim, factor in enumerate(dims):
                if factor is None or self.dims.get((value, dim)) != _HEADS:
                    continue
                for place, own in self._operand_places(node):
                    if own == factor and self.dims.get(place, "features") == "features":
                        self.dims[place] = _HEADS

    def _places(self, node: Op, factor: int) -> list[tuple[int, int]]:
        """Return the dimensions along a factor, of activations, then weights, then results."""
        read = [place for place, own in self._operand_places(node) if own == factor]
        made = [
            (value, dim)
            for value, dims in zip(node.results, node.rule.results, strict=False)
            for dim, own in enumerate(dims)
            if own == factor
        ]
        return [*read, *made]

    def _operand_places(self, node: Op) -> list[tuple[tuple[int, int], int]]:
        """Return ((value, dimension), factor) of all operands of an op, weights last."""
        found: list[tuple[bool, tuple[int, int], int]] = []
        for value, dims in zip(node.operands, node.rule.operands, strict=False):
            for dim, factor in enumerate(dims):
                if value is not None and factor is not None:
                    found.append((value in self.graph.storage.weights, (value, dim), factor))
        ordered = sorted(found, key=lambda row: row[0])
        return [(place, factor) for _, place, factor in ordered]


def _as_activation(label: str) -> str:
    """Return the label that the columns of a weight have in the result of its product."""
    return {_COLUMNS: "features", "output channels": "channels"}.get(label, label)
