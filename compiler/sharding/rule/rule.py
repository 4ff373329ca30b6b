"""Sharding rules: the iteration factors of an op, and what builds the op of one rank.

A rule names the factors an op iterates over and says which factor each dimension of each operand
and result runs along, in the way of einsum and of Shardy's op sharding rules. Every strategy
follows: per mesh axis, one factor is split, or partial sums pass through, or nothing happens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tensoropt.compiler.layout.layout import Layout, Reduction
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.dialects.build import Build, int_attr
from tensoropt.dialects.collectives import all_gather, all_reduce, axis_constant
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tensoropt.compiler.layout.collective import Collective

    InnerKind = Collective | Literal["copy"]

__all__ = [
    "AxisRole",
    "Dims",
    "Factor",
    "InnerStep",
    "Linear",
    "LocalOp",
    "Rule",
    "Strategy",
]

Dims = tuple[int | None, ...]
"""Per tensor dimension, the index of the factor it runs along; ``None``: never split."""


@dataclass(frozen=True)
class Factor:
    """One loop of an op.

    A dimension of several merged loops maps to its major one, whose ``size`` then says how far it
    can be cut. ``size=None`` is symbolic. A split factor with a ``reduction`` leaves partial
    results; one without must not be summed over. A part of fewer than ``least`` points is not
    offered.
    """

    size: int | None
    can_split: bool = True
    reduction: Reduction | None = None
    least: int = 1


@dataclass(frozen=True)
class Linear:
    """The op is linear in these operands taken together: partial sums in all of them pass."""

    operands: tuple[int, ...]


@dataclass(frozen=True)
class InnerStep:
    """What the op of one rank runs inside where axes split ``factors``: a collective over them.

    Or a local copy. The tensor that a rank puts in runs along ``dims`` and has ``item_bytes`` per
    point of them.
    """

    factors: tuple[int, ...]
    dims: tuple[int, ...]
    item_bytes: int
    kind: InnerKind = "all_reduce"


AxisRole = int | Linear | None
"""What one mesh axis does to an op: split a factor, pass partial sums, or nothing."""


@dataclass(frozen=True)
class Rule:
    """How an op may be split.

    ``operands`` and ``results`` map dimensions to factors; an omitted or scalar one is ``()``.
    ``additive`` lists the operands that are added to the reduced result (a bias): with a reduction
    factor split they are partial sums too. ``linear`` lists the groups of operands through which
    partial sums pass to every result. ``localize`` builds the op of one rank where it is more
    than a copy with local shapes; the collectives it builds are listed in ``inner``, so that they
    can be priced. ``flops_per_point`` times the product of the factor sizes is the op's work.
    """

    factors: tuple[Factor, ...]
    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    additive: frozenset[int] = frozenset()
    linear: tuple[Linear, ...] = ()
    localize: Callable[[LocalOp], list[Any]] | None = None
    flops_per_point: float = 1.0
    inner: tuple[InnerStep, ...] = ()

    def inner_steps(
        self, strategy: Strategy, mesh: Mesh
    ) -> list[tuple[InnerKind, tuple[int, ...], int]]:
        """Return (kind, mesh axes, bytes put in per rank) of all inside the op of one rank."""
        found = []
        for held in self.inner:
            axes = sorted(axis for factor in held.factors for axis in strategy.axes_of(factor))
            if axes:
                size = held.item_bytes * self._points(held, strategy, mesh)
                found.append((held.kind, tuple(axes), size))
        return found

    def _points(self, held: InnerStep, strategy: Strategy, mesh: Mesh) -> int:
        """Return the points of one rank's tensor; a symbolic size counts as 1."""
        sizes = ((f, self.factors[f].size or 1) for f in held.dims)
        return math.prod(size // mesh.extent(strategy.axes_of(f)) for f, size in sizes)


@dataclass(frozen=True)
class Strategy:
    """The layouts of an op's operands and results, and the role per mesh axis behind them."""

    roles: tuple[AxisRole, ...] = field(compare=False)
    operands: tuple[Layout, ...]
    results: tuple[Layout, ...]

    def axes_of(self, factor: int) -> tuple[int, ...]:
        """Return the mesh axes that split ``factor``, major first."""
        return tuple(axis for axis, role in enumerate(self.roles) if role == factor)


@dataclass
class LocalOp:
    """One op about to be built for a rank, with operands that are local already.

    ``op`` is the global op; ``result_types`` are the local types that the strategy implies. Values
    are built at the current insertion point, at the location of ``op``.
    """

    op: ir.Operation
    info: OpInfo
    rule: Rule
    strategy: Strategy
    mesh: Mesh
    operands: list[ir.Value]
    result_types: list[ir.Type]

    def build(self) -> list[ir.Value]:
        """Return the local results, by the rule's ``localize`` or as a plain copy."""
        if self.rule.localize is not None:
            return self.rule.localize(self)
        return self.clone()

    def axes(self, factor: int) -> tuple[int, ...]:
        """Return the mesh axes that split ``factor``, major first."""
        return self.strategy.axes_of(factor)

    def pieces(self, factor: int) -> int:
        """Return into how many pieces ``factor`` is cut."""
        return self.mesh.extent(self.axes(factor))

    def divided(self, factor: int, *names: str) -> dict[str, ir.Attribute]:
        """Return the int attributes ``names``, those that are there, divided by the pieces of
        ``factor``: how many of what it counts one rank has."""
        held = {name: self.info.attribute(name) for name in names}
        pieces = self.pieces(factor)
        return {name: int_attr(int(n) // pieces) for name, n in held.items() if n is not None}

    def local_result_shape(self, index: int = 0) -> tuple[int | None, ...]:
        """Return the local shape of result ``index``; ``None`` marks a symbolic dimension."""
        return self.strategy.results[index].local_shape(self.info.result_shape(index), self.mesh)

    def clone(
        self,
        operands: Mapping[int, ir.Value] | None = None,
        attributes: Mapping[str, ir.Attribute] | None = None,
    ) -> list[ir.Value]:
        """Return the results of a copy with local types, some operands or attributes replaced."""
        values = list(self.operands)
        for index, value in (operands or {}).items():
            values[index] = value
        own = self.op.attributes.items()
        kept = {name: held for name, held in own if name not in keys.SEARCHED}
        copy = ir.Operation.create(
            self.op.name,
            results=self.result_types,
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
        """Return the one result of a new ``onnx.<op_type>``; attributes are MLIR attributes."""
        return self._build.onnx(op_type, operands, result, **attributes)

    @property
    def _build(self) -> Build:
        return Build(self.op.location, self.info.standard_version)

    def no_value(self) -> ir.Value:
        """Return what stands for an omitted operand or result."""
        return self._build.no_value()

    def constant(self, array: npt.NDArray[np.generic]) -> ir.Value:
        """Return a literal, the same on every rank."""
        return self._build.constant(array)

    def axis_constant(self, values: npt.NDArray[np.generic], axes: Sequence[int]) -> ir.Value:
        """Return ``values[c]`` on the rank at row-major position ``c`` of ``axes``."""
        return axis_constant(values, axes, self.op.location)

    def all_reduce(self, value: ir.Value, axes: Sequence[int], reduction: str) -> ir.Value:
        """Return ``value`` reduced by sum, max or min over the ranks along ``axes``."""
        if not axes:
            return value
        return all_reduce(value, axes, reduction, self.op.location)

    def all_gather(self, value: ir.Value, dim: int, axes: Sequence[int]) -> ir.Value:
        """Return the parts of the ranks along ``axes``, in order, joined along static ``dim``."""
        return all_gather(value, dim, axes, self.mesh, self.op.location)
