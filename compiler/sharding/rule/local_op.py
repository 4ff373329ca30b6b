"""Building blocks for the op of one rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tensoropt.compiler.layout.rule import Rule, Strategy
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.dialects.build import Build, element_type, int_attr, shape_of, tensor_type
from tensoropt.dialects.collectives import axis_constant, collective, fill_padding
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys
from tensoropt.runtime.layout.layout import Reduction
from tensoropt.runtime.layout.mesh import Mesh

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["NEUTRAL", "LocalOp", "Localize"]

NEUTRAL: Mapping[Reduction, float] = {"sum": 0.0, "max": -math.inf, "min": math.inf}
"""Neutral element of each reduction."""


@dataclass
class LocalOp:
    """An op to be built for one rank, from operands that are already local.

    ``op`` is the global op; ``result_types`` are the local types that the strategy implies. Ops are
    created at the current insertion point, with the location of ``op``.
    """

    op: ir.Operation
    info: OpInfo
    rule: Rule
    strategy: Strategy
    mesh: Mesh
    operands: list[ir.Value]
    result_types: list[ir.Type]

    def build(self) -> list[ir.Value]:
        """Return the local results, built by the rule's ``localize`` or as a plain copy."""
        for index, dim, factor in self.rule.filled(self.strategy, self.mesh):
            reduction = self.rule.factors[factor].reduction
            assert reduction is not None
            neutral = NEUTRAL[reduction]
            self.operands[index] = self.fill_padding(self.operands[index], dim, factor, neutral)
        return self.clone() if self.rule.localize is None else self.rule.localize(self)

    def axes(self, factor: int) -> tuple[int, ...]:
        """Return the mesh axes that split ``factor``, major first."""
        return self.strategy.axes_of(factor)

    def pieces(self, factor: int) -> int:
        """Return the number of pieces into which ``factor`` is split."""
        return self.mesh.extent(self.axes(factor))

    def part(self, factor: int) -> int:
        """Return the number of points of ``factor``, of known size, on one rank, with padding."""
        return self.rule.factors[factor].part(self._extents(factor))

    def is_padded(self, factor: int) -> bool:
        """Return whether some ranks have padding along ``factor``."""
        return self.rule.factors[factor].has_padding(self._extents(factor))

    def _extents(self, factor: int) -> tuple[int, ...]:
        return self.mesh.extents(self.axes(factor))

    def fill_padding(self, x: ir.Value, dim: int, factor: int, fill: float) -> ir.Value:
        """Return ``x`` with the padding of ``factor``, in dimension ``dim``, replaced by ``fill``.

        Return ``x`` itself if there is no padding.
        """
        if not self.is_padded(factor):
            return x
        size, part = self.rule.factors[factor].size, shape_of(x)[dim]
        assert isinstance(size, int) and part, f"{self.op.name}: padding of a symbolic dimension"
        whole = size * part // self.part(factor)  # a dimension may merge the factor with others
        return fill_padding(self._build, x, dim, whole, fill, self.axes(factor), self.mesh)

    def divide_attributes(self, factor: int, *names: str) -> dict[str, ir.Attribute]:
        """Return the integer attributes ``names`` divided by the pieces of ``factor``, rounded up.

        These attributes count points of ``factor``, so the quotients are the counts of one rank,
        with padding. Omitted attributes are skipped.
        """
        attributes = {name: self.info.attribute(name) for name in names}
        own, extents = self.rule.factors[factor], self._extents(factor)
        parts = {
            name: replace(own, size=int(n)).part(extents)
            for name, n in attributes.items()
            if n is not None
        }
        return {name: int_attr(part) for name, part in parts.items()}

    def local_result_shape(self, index: int = 0) -> tuple[int | None, ...]:
        """Return the local shape of result ``index``; ``None`` marks a symbolic dimension."""
        return self.strategy.results[index].local_shape(self.info.result_shape(index), self.mesh)

    def result_pieces(self, index: int = 0) -> list[int]:
        """Return the number of pieces into which each dimension of result ``index`` is split."""
        layout = self.strategy.results[index]
        return [layout.pieces(dim, self.mesh) for dim in range(len(self.info.result_shape(index)))]

    def clone(
        self,
        operands: Mapping[int, ir.Value] | None = None,
        attributes: Mapping[str, ir.Attribute] | None = None,
        results: Sequence[ir.Type] | None = None,
    ) -> list[ir.Value]:
        """Return the results of a copy of the op, with some operands and attributes replaced.

        The results have the local types, or the types in ``results``.
        """
        values = list(self.operands)
        for index, value in (operands or {}).items():
            values[index] = value
        own = self.op.attributes.items()
        kept = {name: attribute for name, attribute in own if name not in keys.SEARCHED}
        copy = ir.Operation.create(
            self.op.name,
            results=self.result_types if results is None else results,
            operands=values,
            attributes={**kept, **(attributes or {})},
            loc=self.op.location,
        )
        return list(copy.results)

    def onnx(
        self,
        op_type: str,
        operands: Sequence[ir.Value],
        result: ir.Type,
        **attributes: ir.Attribute,
    ) -> ir.Value:
        """Return the single result of a new ``onnx.<op_type>``; attributes are MLIR attributes."""
        return self._build.onnx(op_type, operands, result, **attributes)

    @property
    def _build(self) -> Build:
        return Build(self.op.location, self.info.standard_version)

    def no_value(self) -> ir.Value:
        """Return the placeholder for an omitted operand or result."""
        return self._build.no_value()

    def constant(self, array: npt.NDArray[np.generic]) -> ir.Value:
        """Return a literal that is the same on every rank."""
        return self._build.constant(array)

    def axis_constant(self, values: npt.NDArray[np.generic], axes: Sequence[int]) -> ir.Value:
        """Return ``values[c]`` on the rank at row-major position ``c`` of ``axes``.

        Without axes, there is one position.
        """
        if not axes:
            return self.constant(values[0])
        return axis_constant(values, axes, self.op.location)

    def all_reduce(self, value: ir.Value, axes: Sequence[int], reduction: str) -> ir.Value:
        """Return ``value`` reduced by sum, max, or min over the ranks along ``axes``."""
        if not axes:
            return value
        return self.collective("all_reduce", value, axes, reduction=reduction)

    def collective(
        self, kind: str, value: ir.Value, axes: Sequence[int], **settings: int | str | Sequence[int]
    ) -> ir.Value:
        """Return the result of a collective that keeps the shape of ``value``.

        ``settings`` are the attributes of its operator.
        """
        return collective(kind, value, axes, settings, self.op.location)

    def all_gather(self, value: ir.Value, axes: Sequence[int], dim: int = 0) -> ir.Value:
        """Return ``value`` of all ranks along ``axes``, joined in their order along ``dim``."""
        shape = shape_of(value)
        count = shape[dim]
        shape[dim] = None if count is None else count * self.mesh.extent(tuple(axes))
        made = tensor_type(shape, element_type(value))
        return collective("all_gather", value, axes, {"dim": dim}, self.op.location, made)

    def all_to_all_rows(self, value: ir.Value, rows: ir.Value, axes: Sequence[int]) -> ir.Value:
        """Return the rows for this rank of all ranks along ``axes``.

        ``rows`` has the number of consecutive rows for each rank, and of the rows from that rank.
        """
        made = tensor_type([None, *shape_of(value)[1:]], element_type(value))
        return collective("all_to_all_rows", value, axes, {}, self.op.location, made, rows)


Localize = Callable[[LocalOp], list[ir.Value]]
"""Function that builds the op of one rank and returns its results."""
