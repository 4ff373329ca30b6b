"""Labels for the dimensions of tensors: batch, heads, output features.

Labels start at dimensions of a known meaning (the batch of the inputs, the columns of a weight, the
heads of an attention product) and propagate along the factors of the sharding rules.
"""

from __future__ import annotations

from itertools import chain

from tensoropt.compiler.program.graph import Graph, Node

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
    if node.kind != "op" or node.constant or node.rule is None:
        return None
    made = set(chain(*node.rule.results))
    for operand, (value, dims) in enumerate(zip(node.operands, node.rule.operands, strict=False)):
        info = None if value is None else graph.values[value].info
        if value is None or info is None or info.rank < 2 or not graph.is_weight(value):
            continue
        if not any(factor is not None for factor in dims):
            continue
        sizes = zip(info.shape, dims, strict=False)
        if any(size != 1 and (f is None or f not in made) for size, f in sizes):
            return operand
    return None


def is_stacked(graph: Graph, node: Node, operand: int, dim: int) -> bool:
    """Return whether a dimension of a weight numbers the matrices of separate products."""
    value = node.operands[operand]
    info = None if value is None else graph.values[value].info
    if node.info is None or info is None or node.info.name not in _STACKS:
        return False
    return dim < info.rank - 2


class Meanings:
    """Known labels of the dimensions of values and of the factors of ops."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.dims: dict[tuple[int, int], str] = {}
        for node in graph.nodes:
            if node.kind == "argument":
                self._argument(node)
            elif node.kind == "op" and node.rule is not None:
                self._op(node)
        for node in reversed(graph.nodes):
            if node.kind == "op" and not node.constant and node.rule is not None:
                self._back(node)

    def factor(self, node: Node, factor: int) -> str:
        """Return the label of a factor of an op; empty if it is not known."""
        found = [self.dims.get(place, "") for place in self._places(node, factor)]
        if _HEADS in found and matrix_of(self.graph, node) is None:
            return _HEADS
        return next((label for label in found if label), "")

    def is_attention(self, node: Node) -> bool:
        """Return whether an op multiplies activations by activations, as attention does."""
        if node.kind != "op" or node.info is None or node.constant:
            return False
        if node.info.name.endswith("Attention"):
            return True
        given = [value for value in node.operands[:2] if value is not None]
        is_free = not any(self.graph.is_weight(value) for value in given)
        return node.info.name in _PRODUCTS and len(given) == 2 and is_free

    def _argument(self, node: Node) -> None:
        value = node.results[0]
        info = self.graph.values[value].info
        if info is None or node.constant or node.state is not None or not info.rank:
            return
        self.dims[value, 0] = "batch"
        if info.rank == 2 and info.dtype.startswith("int"):
            self.dims[value, 1] = "sequence"
        if info.rank == 4:
            for dim, label in enumerate(("channels", "height", "width"), start=1):
                self.dims[value, dim] = label

    def _op(self, node: Node) -> None:
        matrix = matrix_of(self.graph, node)
        if matrix is not None and node.phase in (None, "forward"):
            self._weights(node, matrix)
        assert node.rule is not None
        self._follow(node)
        if self.is_attention(node) and node.phase in (None, "forward"):
            self._attention(node)

    def _weights(self, node: Node, operand: int) -> None:
        """Label the dimensions of a weight matrix that have no label yet."""
        assert node.rule is not None and node.info is not None
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
            if node.info is not None and is_stacked(self.graph, node, operand, dim):
                label = _STACKS[node.info.name]
            self.dims.setdefault((value, dim), label)

    def _read_factors(self, node: Node, skipped: int) -> set[int | None]:
        """Return the factors of the operands other than weights and operand ``skipped``."""
        assert node.rule is not None
        pairs = zip(node.operands, node.rule.operands, strict=False)
        return {
            factor
            for operand, (value, dims) in enumerate(pairs)
            if operand != skipped and value is not None and not self.graph.is_weight(value)
            for factor in dims
        }

    def _follow(self, node: Node) -> None:
        """Label each dimension of the results with the label of its factor."""
        assert node.rule is not None
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

    def _spatial(self, node: Node, value: int) -> None:
        info = self.graph.values[value].info
        if node.info is None or info is None or not node.info.name.endswith(("Conv", "Pool")):
            return
        for dim, label in enumerate(_SPATIAL.get(info.rank - 2, ()), start=2):
            self.dims.setdefault((value, dim), label)

    def _attention(self, node: Node) -> None:
        """Label the heads: the last factor that both operands and the result of a product have."""
        assert node.rule is not None and node.info is not None
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

    def _back(self, node: Node) -> None:
        """Propagate the label of heads back to the op that splits features into heads."""
        assert node.rule is not None
        if matrix_of(self.graph, node) is not None:
            return
        for value, dims in zip(node.results, node.rule.results, strict=False):
            for dim, factor in enumerate(dims):
                if factor is None or self.dims.get((value, dim)) != _HEADS:
                    continue
                for place, own in self._operand_places(node):
                    if own == factor and self.dims.get(place, "features") == "features":
                        self.dims[place] = _HEADS

    def _places(self, node: Node, factor: int) -> list[tuple[int, int]]:
        """Return the dimensions along a factor, of activations, then weights, then results."""
        assert node.rule is not None
        read = [place for place, own in self._operand_places(node) if own == factor]
        made = [
            (value, dim)
            for value, dims in zip(node.results, node.rule.results, strict=False)
            for dim, own in enumerate(dims)
            if own == factor
        ]
        return [*read, *made]

    def _operand_places(self, node: Node) -> list[tuple[tuple[int, int], int]]:
        """Return ((value, dimension), factor) of all operands of an op, weights last."""
        assert node.rule is not None
        found: list[tuple[bool, tuple[int, int], int]] = []
        for value, dims in zip(node.operands, node.rule.operands, strict=False):
            for dim, factor in enumerate(dims):
                if value is not None and factor is not None:
                    found.append((self.graph.is_weight(value), (value, dim), factor))
        ordered = sorted(found, key=lambda row: row[0])
        return [(place, factor) for _, place, factor in ordered]


def _as_activation(label: str) -> str:
    """Return the label that the columns of a weight have in the result of its product."""
    return {_COLUMNS: "features", "output channels": "channels"}.get(label, label)
