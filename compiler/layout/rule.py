"""Sharding rules: the iteration factors of an op, and the strategies that follow from them.

A rule names the factors an op iterates over and says which factor each dimension of each operand
and result runs along, in the way of einsum and of Shardy's op sharding rules. Every strategy
follows: per mesh axis, one factor is split, or partial sums pass through, or nothing happens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from tensoropt.compiler.layout.collective import Collective
from tensoropt.compiler.layout.layout import Layout, Reduction
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.layout.sizes import Size, mean_of, part_of

__all__ = [
    "AxisRole",
    "Dims",
    "Factor",
    "Filled",
    "InnerKind",
    "InnerStep",
    "Linear",
    "Rule",
    "StepKind",
    "Strategy",
]

InnerKind = Collective | Literal["copy"]

StepKind = InnerKind | Literal["exchange"]
"""Or what neighbours along an axis swap: a permute among two ranks, two of them among more."""

Dims = tuple[int | None, ...]
"""Per tensor dimension, the index of the factor it runs along; ``None``: never split."""


@dataclass(frozen=True)
class Factor:
    """One loop of an op.

    A dimension of several merged loops maps to its major one, whose ``size`` then says how far it
    can be cut. ``size=None`` is symbolic; an :class:`Open` one can be cut if all sizes that it may
    have can. A split factor with a ``reduction`` leaves partial
    results; one without must not be summed over. A part of fewer than ``least`` points is not
    offered. One that is ``padded`` can be cut into parts of which the last have padding: the op of
    one rank may find anything there, and may leave anything there.
    """

    size: Size
    can_split: bool = True
    reduction: Reduction | None = None
    least: int = 1
    padded: bool = False


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
    kind: StepKind = "all_reduce"


@dataclass(frozen=True)
class Filled:
    """What builds the op of one rank as ``localize`` does, of operands in which the padding of what
    is reduced is filled with what changes no result."""

    localize: Callable[[Any], list[Any]]

    def __call__(self, local: object) -> list[Any]:
        return self.localize(local)


AxisRole = int | Linear | None
"""What one mesh axis does to an op: split a factor, pass partial sums, or nothing."""


@dataclass(frozen=True)
class Rule:
    """How an op may be split.

    ``operands`` and ``results`` map dimensions to factors; an omitted or scalar one is ``()``.
    ``additive`` lists the operands that are added to the reduced result (a bias): with a reduction
    factor split they are partial sums too. ``linear`` lists the groups of operands through which
    partial sums pass to every result. ``localize`` builds the op of one rank, from a ``LocalOp``,
    where it is more than a copy with local shapes (see :class:`Filled`); the collectives it builds
    are listed in ``inner``, so that they can be priced. ``flops_per_point`` times the product of
    the factor sizes is the op's work.
    """

    factors: tuple[Factor, ...]
    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    additive: frozenset[int] = frozenset()
    linear: tuple[Linear, ...] = ()
    localize: Callable[[Any], list[Any]] | None = None
    flops_per_point: float = 1.0
    inner: tuple[InnerStep, ...] = ()

    @cached_property
    def points(self) -> int:
        """The product of the factor sizes, of open ones their means."""
        return mean_of(factor.size for factor in self.factors)

    @cached_property
    def _reduced(self) -> tuple[tuple[int, int, int, int], ...]:
        """The (operand, dimension, factor, size) of what may have padding that is filled."""
        if not (self.localize is None or isinstance(self.localize, Filled)):
            return ()
        return tuple(
            (operand, dim, number, factor.size)
            for operand, dims in enumerate(self.operands)
            for dim, number in enumerate(dims)
            if number is not None
            and (factor := self.factors[number]).reduction is not None
            and isinstance(factor.size, int)
        )

    def filled(self, strategy: Strategy, mesh: Mesh) -> list[tuple[int, int, int]]:
        """Return (operand, dimension, factor) of all padding that is filled with what changes no
        result before the op of one rank, in that order: that of what is reduced.

        None where the op of a rank knows of padding itself.
        """
        return [
            (operand, dim, factor)
            for operand, dim, factor, size in self._reduced
            if size % mesh.extent(strategy.axes_of(factor))
        ]

    def inner_steps(
        self, strategy: Strategy, mesh: Mesh
    ) -> list[tuple[InnerKind, tuple[int, ...], int]]:
        """Return (kind, mesh axes, bytes put in per rank) of all inside the op of one rank."""
        found: list[tuple[InnerKind, tuple[int, ...], int]] = []
        for inner in self.inner:
            own = (axis for factor in inner.factors for axis in strategy.axes_of(factor))
            axes = tuple(sorted(own))
            if axes:
                size = inner.item_bytes * self._points(inner, strategy, mesh)
                found += [(kind, axes, size) for kind in _messages(inner.kind, mesh.extent(axes))]
        return found

    def _points(self, inner: InnerStep, strategy: Strategy, mesh: Mesh) -> int:
        """Return the points of one rank's tensor; a symbolic size without range counts as 1."""
        sizes = ((f, mean_of([self.factors[f].size]) or 1) for f in inner.dims)
        return math.prod(part_of(n, mesh.extent(strategy.axes_of(f))) for f, n in sizes)


def _messages(kind: StepKind, ranks: int) -> list[InnerKind]:
    if kind == "exchange":
        return ["collective_permute"] * min(2, ranks - 1)
    return [kind]


@dataclass(frozen=True)
class Strategy:
    """The layouts of an op's operands and results, and the role per mesh axis behind them."""

    roles: tuple[AxisRole, ...] = field(compare=False)
    operands: tuple[Layout, ...]
    results: tuple[Layout, ...]

    def axes_of(self, factor: int) -> tuple[int, ...]:
        """Return the mesh axes that split ``factor``, major first."""
        return tuple(axis for axis, role in enumerate(self.roles) if role == factor)
