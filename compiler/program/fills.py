"""Fills of the padding of operands before the op of one rank runs, and their memory.

Each fill is a copy of an operand (``Where``) under a mask that marks the points without padding. A
constant weight is filled at load, in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensoropt.compiler.cost.compute import local_bytes
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.program.graph import Graph, Node, Op
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["Fill", "Mask", "fills_of", "is_folded", "most_bytes"]


@dataclass(frozen=True)
class Mask:
    """A boolean constant: the points without padding in a rank's part of a dimension.

    ``axes`` split the dimension of ``size``, and ``behind`` dimensions of extent 1 follow it. All
    readers share one constant.
    """

    axes: tuple[int, ...]
    size: int
    behind: int
    bytes: int


@dataclass(frozen=True)
class Fill:
    """A filled copy of an operand, with its bytes and its mask."""

    operand: int
    bytes: int
    mask: Mask


def fills_of(graph: Graph, node: Node, strategy: Strategy, mesh: Mesh) -> list[Fill]:
    """Return the fills before ``node`` runs, in order.

    Ops with their own code for padding (Softmax) are left out, like all memory inside of ops.
    """
    if not isinstance(node, Op) or node.constant or node.passes:
        return []
    return [
        _fill(graph, node, strategy, mesh, operand, dim)
        for operand, dim in _filled(node, graph, strategy, mesh)
        if not is_folded(graph, node, operand)
    ]


def _filled(node: Op, graph: Graph, strategy: Strategy, mesh: Mesh) -> Iterator[tuple[int, int]]:
    """Yield (operand, dimension) of each fill."""
    if node.held:  # a gradient, which is checked for finite values
        last, info = len(node.operands) - 1, graph.values[node.results[0]].info
        sizes = () if info is None else info.sizes
        yield from ((last, dim) for dim in strategy.operands[last].padded_dims(sizes, mesh))
    yield from ((operand, dim) for operand, dim, _ in node.rule.filled(strategy, mesh))


def is_folded(graph: Graph, node: Node, operand: int) -> bool:
    """Return whether an operand exists at load: its padding is then filled in place."""
    value = node.operands[operand]
    return value is None or value in graph.storage.constants


def _fill(graph: Graph, node: Node, strategy: Strategy, mesh: Mesh, operand: int, dim: int) -> Fill:
    value, layout = node.operands[operand], strategy.operands[operand]
    info = None if value is None else graph.values[value].info
    assert info is not None, f"{node.name}: what is filled has a shape"
    size, axes = info.sizes[dim], layout.axes_splitting(dim)
    assert isinstance(size, int), f"{node.name}: the padding of a symbolic dimension"
    (part,) = layout.local_shape(info.sizes, mesh)[dim : dim + 1]
    assert isinstance(part, int)
    mask = Mask(axes, size, len(info.sizes) - dim - 1, part)
    return Fill(operand, local_bytes(info, layout, mesh), mask)


def most_bytes(
    read: Mapping[int, tuple[object, int]], fills: Sequence[Fill], made_bytes: int
) -> int:
    """Return the peak bytes of an op's own tensors while operands are filled and the op runs.

    ``read`` has the tensor and its bytes for each operand that counts.
    """
    held, most = dict(read), 0
    for number, fill in enumerate(fills):
        most = max(most, sum(dict(held.values()).values()) + fill.bytes)
        held[fill.operand] = ("filled", number), fill.bytes
    return max(most, sum(dict(held.values()).values()) + made_bytes)
