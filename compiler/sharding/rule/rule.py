"""Sharding rules: the iteration factors of an op, and the strategies that follow from them.

A rule names the factors an op iterates over and says which factor each dimension of each operand
and result runs along, in the way of einsum and of Shardy's op sharding rules. Every strategy
follows: per mesh axis, one factor is split, or partial sums pass through, or nothing happens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tensoropt.compiler.layout.layout import (
    PARTIAL_SUM,
    REPLICATE,
    Layout,
    Placement,
    Reduction,
    partial,
    split,
)
from tensoropt.compiler.layout.mesh import Mesh, grouped

if TYPE_CHECKING:
    from tensoropt.compiler.layout.collective import Collective
    from tensoropt.compiler.sharding.rule.local import LocalOp

    InnerKind = Collective | Literal["copy"]

__all__ = [
    "Choice",
    "Dims",
    "Factor",
    "InnerStep",
    "Linear",
    "Rule",
    "Strategy",
    "axis_choices",
    "placements",
    "strategies",
    "strategy_of_choices",
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


Choice = int | Linear | None
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
    """The layouts of an op's operands and results, and the choice per mesh axis behind them."""

    choices: tuple[Choice, ...] = field(compare=False)
    operands: tuple[Layout, ...]
    results: tuple[Layout, ...]

    def axes_of(self, factor: int) -> tuple[int, ...]:
        """Return the mesh axes that split ``factor``, major first."""
        return tuple(axis for axis, choice in enumerate(self.choices) if choice == factor)


def strategies(rule: Rule, mesh: Mesh) -> tuple[Strategy, ...]:
    """Return every distinct strategy that ``rule`` offers on ``mesh``; the first replicates.

    Cost: the product over axes of (factors that the axis divides + linear groups + 1), on meshes of
    more than three axes its square for every place where two groups of axes meet.
    """
    options = [_options(rule, extent) for extent in mesh.shape]
    found: dict[Strategy, None] = {}
    for choices in grouped(mesh, options):
        if _divides(rule, mesh, choices):
            found.setdefault(_strategy(rule, choices), None)
    return tuple(found)


def axis_choices(rule: Rule) -> list[Choice]:
    """Return what a mesh axis can do to the op, whatever its extent divides."""
    splits = [i for i, factor in enumerate(rule.factors) if factor.can_split and factor.size != 1]
    return [None, *splits, *rule.linear]


def placements(rule: Rule, choice: Choice) -> tuple[list[Placement], list[Placement]]:
    """Return the placements of operands and of results on a mesh axis that does ``choice``."""
    operands = [_operand_placement(rule, index, choice) for index in range(len(rule.operands))]
    return operands, [_result_placement(rule, dims, choice) for dims in rule.results]


def strategy_of_choices(rule: Rule, mesh: Mesh, choices: tuple[Choice, ...]) -> Strategy | None:
    """Return the strategy of one choice per mesh axis, ``None`` where it is not offered."""
    offered = mesh.is_grouped(choices) and _divides(rule, mesh, choices)
    return _strategy(rule, choices) if offered else None


def _options(rule: Rule, extent: int) -> list[Choice]:
    """Return what an axis of ``extent`` ranks can do to the op; nothing where it is one rank."""
    if extent == 1:
        return [None]
    splits = [index for index, factor in enumerate(rule.factors) if _cuts(factor, extent)]
    return [None, *splits, *rule.linear]


def _cuts(factor: Factor, pieces: int) -> bool:
    """Say whether ``factor`` has a size that ``pieces`` divides into parts that are long enough.

    Nothing to cut is no cut.
    """
    if not factor.can_split or not factor.size:
        return False
    return factor.size % pieces == 0 and factor.size // pieces >= factor.least


def _divides(rule: Rule, mesh: Mesh, choices: tuple[Choice, ...]) -> bool:
    """Say whether each factor is divided by all axes that split it together."""
    pieces: dict[int, int] = {}
    for extent, choice in zip(mesh.shape, choices, strict=True):
        if isinstance(choice, int):
            pieces[choice] = pieces.get(choice, 1) * extent
    return all(_cuts(rule.factors[index], count) for index, count in pieces.items())


def _strategy(rule: Rule, choices: tuple[Choice, ...]) -> Strategy:
    operands = tuple(
        Layout(tuple(_operand_placement(rule, index, choice) for choice in choices))
        for index in range(len(rule.operands))
    )
    results = tuple(
        Layout(tuple(_result_placement(rule, dims, choice) for choice in choices))
        for dims in rule.results
    )
    return Strategy(choices, operands, results)


def _operand_placement(rule: Rule, operand: int, choice: Choice) -> Placement:
    if choice is None:
        return REPLICATE
    if isinstance(choice, Linear):
        return PARTIAL_SUM if operand in choice.operands else REPLICATE
    if choice in rule.operands[operand]:
        return split(rule.operands[operand].index(choice))
    reduction = rule.factors[choice].reduction
    return partial(reduction) if reduction and operand in rule.additive else REPLICATE


def _result_placement(rule: Rule, dims: Dims, choice: Choice) -> Placement:
    if choice is None:
        return REPLICATE
    if isinstance(choice, Linear):
        return PARTIAL_SUM
    if choice in dims:
        return split(dims.index(choice))
    reduction = rule.factors[choice].reduction
    return partial(reduction) if reduction else REPLICATE
