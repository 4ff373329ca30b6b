"""Sharding rules: the iteration factors of an op, and the strategies that follow from them.

A rule names the factors an op iterates over, and maps each dimension of each operand and result to
a factor, like einsum and Shardy's op sharding rules. The strategies are derived from it: each mesh
axis splits one factor, lets partial sums pass, or does nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tensoropt.compiler.layout.sizes import Size, is_worth_units, mean_of
from tensoropt.runtime.layout.division import Division
from tensoropt.runtime.layout.layout import Blocks, Layout, Placement, Reduction, Units, split
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.layout.padding import part_of

__all__ = [
    "LOCAL_KINDS",
    "AxisRole",
    "Dims",
    "Factor",
    "Filled",
    "InnerKind",
    "InnerStep",
    "Joint",
    "Linear",
    "Minor",
    "Rule",
    "Sections",
    "StepKind",
    "Strategy",
    "UnitsOfDims",
    "split_by",
]

InnerKind = str
"""The name of a collective, or ``copy``."""

StepKind = InnerKind
"""Also ``exchange``, which swaps edges between neighbours along an axis: one collective permute for
two ranks, two for more. In a ``ring``, all ranks pass a tensor on until each has had it, in
collective permutes; ``turn`` is a copy for each rank of the ring. ``memory`` is
memory that the op takes while it runs, and no time."""

LOCAL_KINDS = ("copy", "memory", "turn")
"""Kinds of steps that send nothing."""

Sections = tuple[tuple[int, int, Blocks], ...]
"""Blocks of dimensions: (tensor, dimension, blocks), sorted; operands come before results."""

Minor = tuple[int, int, int]
"""A tensor, a dimension that merges two loops, and the factor of the minor one."""

UnitsOfDims = tuple[tuple[int, int, Units], ...]
"""Units of dimensions: (tensor, dimension, units), sorted as sections."""

Dims = tuple[int | None, ...]
"""The index of the factor of each tensor dimension; ``None`` if it is never split."""


@dataclass(frozen=True)
class Factor:
    """One loop of an op.

    A dimension of several merged loops maps to the major loop; its ``size`` then limits the number
    of parts. ``size=None`` is symbolic; an :class:`Open` size can be split if every size in
    its range can. Splitting a factor with a ``reduction`` leaves partial results; a factor without
    a reduction must not be summed over. Parts of fewer than ``least`` points are not offered. The
    last parts of a ``padded`` factor may be padded: the op of one rank may read anything there and
    may write anything there. A factor with ``blocks`` is split in these if every block divides,
    else contiguously. A factor with ``units`` consists of this number of equal runs of points. If
    the number of pieces does not divide it, and padding is little (:func:`is_worth_units`), each
    piece has whole units; else the units are ignored. A dimension of several merged loops has
    padding only between units. A factor with blocks has a number of units in each. A minor factor
    that is ``crossing`` may be split in blocks though the parts could be whole blocks.
    """

    size: Size
    can_split: bool = True
    reduction: Reduction | None = None
    least: int = 1
    padded: bool = False
    blocks: Blocks = ()
    units: Units = ()
    crossing: bool = False

    def divides_in_blocks(self, pieces: int) -> bool:
        """Return whether the factor has blocks, and ``pieces`` divides each."""
        if not self.blocks or not isinstance(self.size, int):
            return False
        return self.size % (sum(self.blocks) * pieces) == 0

    def part(self, extents: Sequence[int]) -> int:
        """Return the points of a part, with padding, if axes of ``extents`` split the factor.

        The size is known.
        """
        assert isinstance(self.size, int), "the part of a symbolic dimension"
        if not is_worth_units(self.units, extents):
            return part_of(self.size, math.prod(extents))
        return Division(self.size, math.prod(extents), self.blocks, self.units).part

    def has_padding(self, extents: Sequence[int]) -> bool:
        """Return whether the last parts have padding, or some have copies."""
        return isinstance(self.size, int) and self.part(extents) * math.prod(extents) != self.size


@dataclass(frozen=True)
class Linear:
    """Operands in which the op is jointly linear: partial sums in all of them pass through."""

    operands: tuple[int, ...]


@dataclass(frozen=True)
class Joint:
    """Factors that one axis can split together.

    The op of a rank exchanges points with the other ranks of the axis, so that the axis divides the
    work once, though it splits several loops: tokens and experts, if tokens are sent to the ranks
    of their experts. The results must run along one of the factors.
    """

    factors: tuple[int, ...]


@dataclass(frozen=True)
class InnerStep:
    """A collective, or a local copy, inside the op of one rank when axes split ``factors``.

    The collective runs over these axes. Each rank's input tensor runs along the factors ``dims``
    and has ``item_bytes`` bytes per point, with at most ``most`` points of the last factor, if that
    is not 0. A ``padded`` step only runs if a factor has padding, and an ``unsplit`` step if no
    axis splits ``factors``. A ``joint`` step runs over the axes that split all ``factors``
    together, a ``lone`` step over those that split them together with no other factor. A local step
    over no factors runs in all strategies. The step runs several ``times``.

    With ``choices``, each point of ``dims`` goes to the ranks of that many points of the last
    factor, chosen at random, and once to each rank along the joint axes.
    """

    factors: tuple[int, ...]
    dims: tuple[int, ...]
    item_bytes: int
    kind: StepKind = "all_reduce"
    padded: bool = False
    unsplit: bool = False
    joint: bool = False
    lone: bool = False
    choices: int = 0
    most: int = 0
    times: int = 1

    @property
    def is_local(self) -> bool:
        """True if the step sends nothing."""
        return self.kind in LOCAL_KINDS


@dataclass(frozen=True)
class Filled:
    """A ``localize`` that expects the padding of reduced dimensions to be neutral.

    The caller first fills this padding with a value that changes no result.
    """

    localize: Callable[[Any], list[Any]]

    def __call__(self, local: object) -> list[Any]:
        return self.localize(local)


AxisRole = int | Linear | Joint | None
"""The effect of one mesh axis on an op: split a factor, or several together, let partial sums pass,
or nothing."""


@dataclass(frozen=True)
class Rule:
    """The possible splits of an op.

    ``operands`` and ``results`` map dimensions to factors; an omitted or scalar tensor is ``()``.
    ``additive`` lists the operands that are added to the reduced result (a bias): when a reduction
    factor is split, they are partial sums too. ``linear`` lists the groups of operands through
    which partial sums pass to every result. ``joint`` lists the groups of factors that an axis can
    split together; if their parts travel in a ring, no other axis splits one of them alone.
    ``reduced`` lists the results that the op of one rank reduces itself: they are never partial.
    ``growing`` lists the groups of factors along which the work grows from nothing to twice the
    mean: if axes split such a group, the busiest of ``n`` parts has ``2 - 1 / n`` times the mean.
    ``localize`` builds the op of one rank from a
    ``LocalOp`` when a copy with local shapes is not enough (see :class:`Filled`). ``inner`` lists
    the collectives that it builds, so that the cost model sees them. ``sections`` has (tensor,
    dimension, blocks) of each dimension with blocks where its factor has others: such a dimension
    joins several runs of the factor. ``minors`` has (tensor, dimension, factor) of each dimension
    that merges the loops of its factor with a minor factor. The minor one is only split if
    each rank has one point of the major one. With ``sections`` too, for a block at each point of
    the major factor, it is also split in these blocks, unless the parts could be whole blocks and
    it is not crossing.
    ``counted`` has (tensor, dimension, units) of each dimension with other units than its factor:
    one that merges the factor with others, so that each of its points is a unit, or one of an
    operator that cuts or joins blocks. Operands come first in the count of tensors. The work of the
    op in flops is ``flops_per_point`` times the product of the factor sizes.
    """

    factors: tuple[Factor, ...]
    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    additive: frozenset[int] = frozenset()
    linear: tuple[Linear, ...] = ()
    joint: tuple[Joint, ...] = ()
    reduced: frozenset[int] = frozenset()
    growing: tuple[tuple[int, ...], ...] = ()
    localize: Callable[[Any], list[Any]] | None = None
    flops_per_point: float = 1.0
    inner: tuple[InnerStep, ...] = ()
    sections: Sections = ()
    minors: tuple[Minor, ...] = ()
    counted: UnitsOfDims = ()

    @cached_property
    def rings(self) -> frozenset[Joint]:
        """The groups of factors with parts that travel in a ring."""
        rings = (step.factors for step in self.inner if step.joint and step.kind == "ring")
        return frozenset(map(Joint, rings))

    def dim_of(self, tensor: int, factor: int) -> int | None:
        """Return the dimension of a tensor, operands first, that a factor splits, if any."""
        count = len(self.operands)
        dims = self.operands[tensor] if tensor < count else self.results[tensor - count]
        if factor in dims:
            return dims.index(factor)
        return next(
            (dim for own, dim, minor in self.minors if (own, minor) == (tensor, factor)), None
        )

    def inner_factor(self, tensor: int, dim: int) -> int | None:
        """Return the factor of a dimension of a tensor; of samples and heads, the heads."""
        dims = (*self.operands, *self.results)[tensor]
        minors = (minor for *place, minor in self.minors if place == [tensor, dim])
        crossing = (minor for minor in minors if self.factors[minor].crossing)
        return next(crossing, dims[dim] if dim < len(dims) else None)

    @cached_property
    def has_blocks(self) -> bool:
        """True if a strategy may split a dimension in blocks."""
        return bool(self.sections) or any(factor.blocks for factor in self.factors)

    @cached_property
    def blocks(self) -> Sections:
        """The (tensor, dimension, blocks) of each dimension that may be split in blocks."""
        own, tensors = dict[tuple[int, int], Blocks](), (*self.operands, *self.results)
        for tensor, dims in enumerate(tensors if self.has_blocks else ()):
            for dim, factor in enumerate(dims):
                if factor is not None and self.factors[factor].blocks:
                    own[tensor, dim] = self.factors[factor].blocks
        own |= {(tensor, dim): blocks for tensor, dim, blocks in self.sections}
        return tuple((*place, blocks) for place, blocks in sorted(own.items()))

    @cached_property
    def units(self) -> UnitsOfDims:
        """The (tensor, dimension, units) of each dimension that may be split in units."""
        own = {
            (tensor, dim): self.factors[number].units
            for tensor, dims in enumerate((*self.operands, *self.results))
            for dim, number in enumerate(dims)
            if number is not None and self.factors[number].units
        }
        own |= {(tensor, dim): units for tensor, dim, units in self.counted}
        return tuple((*place, units) for place, units in sorted(own.items()))

    @cached_property
    def merged_dims(self) -> frozenset[tuple[int, int]]:
        """The (tensor, dimension) of each dimension that merges a factor with a minor one."""
        return frozenset((tensor, dim) for tensor, dim, _ in self.minors)

    @cached_property
    def counted_dims(self) -> frozenset[tuple[int, int]]:
        """The (tensor, dimension) of each dimension with units of its own, see ``counted``."""
        return frozenset((tensor, dim) for tensor, dim, _ in self.counted)

    @cached_property
    def splits(self) -> tuple[tuple[int, Placement], ...]:
        """The (tensor, placement) of each dimension that may be split in blocks or units."""
        blocks = {own[:2]: own[2] for own in self.blocks}
        units = {own[:2]: own[2] for own in self.units}
        found = list[tuple[int, Placement]]()
        for tensor, dim in sorted({*blocks, *units}):
            own, counts = blocks.get((tensor, dim), ()), units.get((tensor, dim), ())
            if own and len(counts) == 1:  # of two merged loops, one has blocks and one has units
                found += [(tensor, split(dim, own)), (tensor, split(dim, (), counts))]
            else:
                found.append((tensor, split(dim, own, counts)))
        return tuple(found)

    def units_of(self, factor: int) -> Units:
        """Return the units of a factor, or of the dimension in most blocks along it."""
        tensors = (*self.operands, *self.results)
        places = (u for tensor, dim, u in self.counted if tensors[tensor][dim] == factor)
        return max(self.factors[factor].units, *places, (), key=len)

    @cached_property
    def _unit_counts(self) -> tuple[Units, ...]:
        """The units of each factor; none if they count a minor factor, too."""
        tensors = (*self.operands, *self.results)
        apart = {
            tensors[tensor][dim]
            for tensor, dim, units in self.counted
            if (tensor, dim) in self.merged_dims and len(units) > 1
        }
        numbers = range(len(self.factors))
        return tuple(self.factors[n].units if n in apart else self.units_of(n) for n in numbers)

    def is_in_units(self, factor: int, extents: Sequence[int]) -> bool:
        """Return whether parts of a factor have whole units, with padding or copies."""
        return is_worth_units(self._unit_counts[factor], extents)

    @cached_property
    def points(self) -> int:
        """Product of the factor sizes, with the mean for an open size."""
        return mean_of(factor.size for factor in self.factors)

    @cached_property
    def _reduced(self) -> tuple[tuple[int, int, int], ...]:
        """Reduced dimensions with padding to fill: (operand, dimension, factor)."""
        if not (self.localize is None or isinstance(self.localize, Filled)):
            return ()
        return tuple(
            (operand, dim, number)
            for operand, dims in enumerate(self.operands)
            for dim, number in enumerate(dims)
            if number is not None and self.factors[number].reduction is not None
        )

    def filled(self, strategy: Strategy, mesh: Mesh) -> list[tuple[int, int, int]]:
        """Return the (operand, dimension, factor) of each padded dimension to fill, in that order.

        The padding of reduced dimensions is filled with a neutral value before the op of one rank.
        The list is empty if ``localize`` handles padding itself.
        """
        return [
            (operand, dim, factor)
            for operand, dim, factor in self._reduced
            if self.factors[factor].has_padding(mesh.extents(strategy.axes_of(factor)))
        ]

    def inner_steps(
        self, strategy: Strategy, mesh: Mesh
    ) -> list[tuple[InnerKind, tuple[int, ...], int]]:
        """Return (kind, mesh axes, input bytes per rank) of each step inside the op of one rank."""
        found: list[tuple[InnerKind, tuple[int, ...], int]] = []
        for inner, axes, size in self._running(strategy, mesh):
            if inner.kind != "memory":
                found += [(kind, axes, size) for kind in _messages(inner, mesh.extent(axes))]
        return found

    def ring_messages(self, strategy: Strategy, mesh: Mesh) -> list[tuple[tuple[int, ...], int]]:
        """Return (mesh axes, bytes per rank) of each message of parts that travel in a ring."""
        found = list[tuple[tuple[int, ...], int]]()
        for inner, axes, size in self._running(strategy, mesh) if self.rings else ():
            if inner.joint and inner.kind == "ring":
                found += [(axes, size)] * len(_messages(inner, mesh.extent(axes)))
        return found

    def inner_bytes(self, strategy: Strategy, mesh: Mesh) -> int:
        """Return the bytes that the op of one rank takes besides its operands and results."""
        steps = self._running(strategy, mesh)
        return sum(inner.times * size for inner, _, size in steps if inner.kind == "memory")

    def _running(
        self, strategy: Strategy, mesh: Mesh
    ) -> Iterator[tuple[InnerStep, tuple[int, ...], int]]:
        """Yield each inner step of a strategy, with its axes and the bytes of one rank's tensor."""
        for inner in self.inner:
            split = [set(strategy.axes_of(factor)) for factor in inner.factors]
            own = set.intersection(*split) if inner.joint else set[int]().union(*split)
            own -= {*strategy.joint_axes} if inner.lone else set()
            axes = tuple(sorted(own))
            if inner.factors and bool(axes) == inner.unsplit:
                continue
            if not inner.padded or self._has_padding(inner.factors, strategy, mesh):
                yield inner, axes, round(inner.item_bytes * self._points(inner, strategy, mesh))

    def _has_padding(self, factors: Sequence[int], strategy: Strategy, mesh: Mesh) -> bool:
        return any(self.factors[f].has_padding(mesh.extents(strategy.axes_of(f))) for f in factors)

    def _points(self, inner: InnerStep, strategy: Strategy, mesh: Mesh) -> float:
        """Return the points of one rank's tensor; a symbolic size without a range counts as 1."""
        parts = [_part(self.factors[f], mesh.extents(strategy.axes_of(f))) for f in inner.dims]
        if inner.most:
            parts[-1] = min(parts[-1], inner.most)
        # A joint axis divides the product of its factors once.
        split = {axis: split_by(strategy.roles[axis]) for axis in mesh.axes}
        again = (axis for axis in mesh.axes if len(set(split[axis]) & set(inner.dims)) > 1)
        points = math.prod(parts) * mesh.extent(tuple(again))
        return points * _reached(strategy, mesh, inner) if inner.choices else points


def _part(factor: Factor, extents: Sequence[int]) -> int:
    if isinstance(factor.size, int):
        return factor.part(extents) or 1
    return part_of(mean_of([factor.size]) or 1, math.prod(extents))


def split_by(role: AxisRole) -> tuple[int, ...]:
    """Return the factors that an axis of this role splits."""
    if isinstance(role, Joint):
        return role.factors
    return (role,) if isinstance(role, int) else ()


def _reached(strategy: Strategy, mesh: Mesh, inner: InnerStep) -> float:
    """Return the ranks along the joint axes that the choices of a point reach.

    Each of the ``p`` parts of the last factor is chosen with probability
    ``1 - (1 - 1 / p)^choices``.
    """
    ranks = mesh.extent(strategy.joint_axes)
    parts = mesh.extent(strategy.axes_of(inner.factors[-1]))
    return ranks * (1.0 - (1.0 - 1.0 / parts) ** inner.choices) if ranks > 1 else 1.0


def _messages(inner: InnerStep, ranks: int) -> list[InnerKind]:
    kind, count = inner.kind, 1
    if kind == "exchange":
        kind, count = "collective_permute", min(2, ranks - 1)
    elif kind == "ring":
        kind, count = "collective_permute", ranks - 1
    elif kind == "turn":
        kind, count = "copy", ranks
    return [kind] * (count * inner.times)


@dataclass(frozen=True)
class Strategy:
    """The layouts of an op's operands and results, and the axis roles that they follow from."""

    roles: tuple[AxisRole, ...] = field(compare=False)
    operands: tuple[Layout, ...]
    results: tuple[Layout, ...]

    def axes_of(self, factor: int) -> tuple[int, ...]:
        """Return the mesh axes that split ``factor``, alone or with others, major first."""
        return tuple(axis for axis, role in enumerate(self.roles) if factor in split_by(role))

    @property
    def joint_axes(self) -> tuple[int, ...]:
        """The mesh axes that split several factors together, major first."""
        return tuple(axis for axis, role in enumerate(self.roles) if isinstance(role, Joint))
