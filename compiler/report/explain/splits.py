"""Splits of ops in words, derived from the role of each mesh axis."""

from __future__ import annotations

from itertools import chain

from tensoropt.compiler.layout.mesh import axis_names
from tensoropt.compiler.layout.rule import AxisRole, Joint, Linear, Strategy
from tensoropt.compiler.program.graph import Graph, Op
from tensoropt.compiler.report.explain.meaning import Meanings, is_stacked, matrix_of
from tensoropt.compiler.report.explanation import Split
from tensoropt.runtime.layout.layout import Layout, units_text
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["Words"]


class Words:
    """Words for the splits and layouts of a graph on a mesh."""

    def __init__(self, graph: Graph, mesh: Mesh) -> None:
        self.graph, self.mesh = graph, mesh
        self.meanings = Meanings(graph)

    def splits(self, node: Op, strategy: Strategy) -> tuple[Split, ...]:
        """Return a split for each group of axes with the same role; empty for a replicated op."""
        roles: dict[AxisRole, list[int]] = {}
        for axis, role in enumerate(strategy.roles):
            if role is not None and self.mesh.shape[axis] > 1:
                roles.setdefault(role, []).append(axis)
        return tuple(self._split(node, role, axis_names(axes)) for role, axes in roles.items())

    def describe(self, value: int, layout: Layout) -> str:
        """Return a layout in words: split by heads over x, as partial sums over y, or whole."""
        texts = []
        for placement in dict.fromkeys(layout.placements):
            placed = layout.axes_of(placement)
            if placement.is_split:
                placed = layout.axes_splitting(placement.dim)
            axes = tuple(a for a in placed if self.mesh.shape[a] > 1)
            if placement.is_replicate or not axes:
                continue
            over = f"over {','.join(axis_names(axes))}"
            if placement.is_split:
                each = f" in {len(placement.blocks)} blocks" if placement.blocks else ""
                units = units_text(placement.units) if placement.units else ""
                each += f" in {units} units" if units else ""
                texts.append(f"split by {self.dimension(value, placement.dim)}{each} {over}")
            else:
                texts.append(f"as partial {_REDUCED[placement.reduction or 'sum']} {over}")
        return " and ".join(texts) or "whole"

    def dimension(self, value: int, dim: int) -> str:
        """Return the label of a dimension, or its number."""
        return self.meanings.dims.get((value, dim), f"dimension {dim}")

    def _split(self, node: Op, role: AxisRole, axes: tuple[str, ...]) -> Split:
        if isinstance(role, Linear):
            return Split(axes, "passes partial sums on", "")
        if isinstance(role, Joint):
            labels = [self._label(node, factor) for factor in role.factors]
            return Split(axes, f"split by {' and '.join(labels)} together", "")
        assert role is not None
        label = self.meanings.factor(node, role)
        is_summed = node.rule.factors[role].reduction is not None
        matrix = matrix_of(self.graph, node)
        if matrix is not None and role in node.rule.operands[matrix]:
            return self._of_weight(node, role, axes, matrix, label)
        return Split(axes, f"split by {self._label(node, role)}", label, None, is_summed)

    def _label(self, node: Op, factor: int) -> str:
        """Return the label of a factor, or of a dimension along it."""
        label = self.meanings.factor(node, factor)
        return label or self._minor(node, factor) or self._dimension(node, factor)

    def _minor(self, node: Op, factor: int) -> str | None:
        """Return the label of the dimension of a result in which a factor is the minor one."""
        first = len(node.operands)
        places = (own for *own, minor in node.rule.minors if minor == factor and own[0] >= first)
        values = ((node.results[tensor - first], dim) for tensor, dim in places)
        return next((self.meanings.dims[own] for own in values if own in self.meanings.dims), None)

    def _of_weight(
        self, node: Op, factor: int, axes: tuple[str, ...], matrix: int, label: str
    ) -> Split:
        weight = self.name(node, matrix)
        made = factor in set(chain(*node.rule.results))
        if node.phase == "backward":
            what = label or self._dimension(node, factor)
            return Split(axes, f"split by {what}", label, weight, not made)
        own = node.rule.operands[matrix].index(factor)
        value = node.operands[matrix]
        label = self.meanings.dims.get((value, own), label) if value is not None else label
        if node.info.name == "Gather" or is_stacked(self.graph, node, matrix, own):
            return Split(axes, f"split by {label}", label, weight, not made)
        return Split(axes, "column split" if made else "row split", label, weight, not made)

    def _dimension(self, node: Op, factor: int) -> str:
        for dims in (*node.rule.results, *node.rule.operands):
            if factor in dims:
                return f"dimension {dims.index(factor)}"
        return "a loop"

    def name(self, node: Op, operand: int) -> str | None:
        """Return the name of the parameter that an operand is or is folded from, if any."""
        value = node.operands[operand]
        producer = None if value is None else self.graph.producer(value)
        constants, state = self.graph.storage.constants, self.graph.storage.state
        while isinstance(producer, Op):
            value = next((v for v in producer.operands if v in constants or v in state), None)
            producer = None if value is None else self.graph.producer(value)
        return None if producer is None else producer.name


_REDUCED = {"sum": "sums", "max": "maxima", "min": "minima"}
