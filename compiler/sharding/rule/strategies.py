"""Enumeration of the strategies that a rule offers on a mesh."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from tensoropt.compiler.layout.mesh import grouped, is_grouped
from tensoropt.compiler.layout.rule import (
    AxisRole,
    Factor,
    Joint,
    Linear,
    Rule,
    Strategy,
    split_by,
)
from tensoropt.compiler.layout.sizes import Open, is_worth_units
from tensoropt.runtime.layout.layout import (
    PARTIAL_SUM,
    REPLICATE,
    Layout,
    Placement,
    partial,
    split,
)
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.layout.padding import can_pad, part_of

__all__ = [
    "Pads",
    "axis_roles",
    "has_role",
    "placements",
    "strategies",
    "strategy_of_layouts",
    "strategy_of_roles",
]

Pads = Callable[[int, int, int], bool]
"""Whether to split a size into a number of pieces that does not divide it, by a number of axes."""


def _can_pad(size: int, pieces: int, axes: int) -> bool:
    return can_pad(size, pieces)


def strategies(rule: Rule, mesh: Mesh, pads: Pads = _can_pad) -> tuple[Strategy, ...]:
    """Return every distinct strategy that ``rule`` offers on ``mesh``; the first one replicates.

    ``pads`` decides which sizes may be padded; by default, the sizes that layouts can pad.

    Cost: the product over axes of (factors that the axis divides + groups + 1). On meshes of
    more than three axes, its square for every boundary between two groups of axes.
    """
    options = [_options(rule, extent, pads) for extent in mesh.shape]
    found: dict[Strategy, None] = {}
    for roles in grouped(mesh, options):
        if _divides(rule, mesh, roles, pads):
            found.setdefault(_strategy(rule, roles, mesh), None)
    return tuple(found)


def axis_roles(rule: Rule) -> list[AxisRole]:
    """Return every role that a mesh axis of any extent can have for the op."""
    splits = [
        number
        for number, factor in enumerate(rule.factors)
        if factor.can_split and (factor.size != 1 or rule.units_of(number))
    ]
    return [None, *splits, *rule.linear, *_joint(rule, splits)]


def placements(rule: Rule, role: AxisRole) -> tuple[list[Placement], list[Placement]]:
    """Return the placements of operands and of results on a mesh axis with role ``role``.

    They are plain, as the other axes decide whether a dimension is split in blocks; only crossing
    factors are in blocks, to tell them from the samples.
    """
    operands = [_operand_placement(rule, index, role) for index in range(len(rule.operands))]
    results = [_result_placement(rule, index, role) for index in range(len(rule.results))]
    if not isinstance(role, int) or not rule.factors[role].crossing:
        return operands, results
    placed = [*operands, *results]
    for tensor, dim, blocks in rule.sections:
        if (tensor, dim, role) in rule.minors:
            placed[tensor] = split(dim, blocks)
    return placed[: len(operands)], placed[len(operands) :]


def strategy_of_roles(
    rule: Rule, mesh: Mesh, roles: tuple[AxisRole, ...], pads: Pads = _can_pad
) -> Strategy | None:
    """Return the strategy with these roles, one per mesh axis, or ``None`` if it is not offered."""
    offered = is_grouped(mesh, roles) and _divides(rule, mesh, roles, pads)
    return _strategy(rule, roles, mesh) if offered else None


def strategy_of_layouts(
    rule: Rule, mesh: Mesh, operands: Sequence[Layout], results: Sequence[Layout]
) -> Strategy | None:
    """Return the first strategy in the order of :func:`strategies` with these layouts, or ``None``.

    Each axis is matched on its own. Cost: the axes times the roles of each, times the operands and
    results.
    """
    if any(layout.turned for layout in (*operands, *results)):
        return None  # an op splits its factors in mesh order
    wanted = Strategy((), tuple(operands), tuple(results))
    candidates = [
        [role for role in _options(rule, extent) if has_role(rule, wanted, axis, role)]
        for axis, extent in enumerate(mesh.shape)
    ]
    for roles in itertools.product(*candidates):
        found = strategy_of_roles(rule, mesh, roles)
        if found == wanted:
            return found
    return None


def has_role(rule: Rule, strategy: Strategy, axis: int, role: AxisRole) -> bool:
    """Return whether ``axis`` places operands and results as in ``role``.

    Several roles may give the same layouts. Blocks and units are ignored, and dimensions with
    copies of units may be whole.
    """
    operands, results = placements(rule, role)
    layouts = (*strategy.operands[: len(operands)], *strategy.results)
    return all(
        own.placements[axis].plain == placed.plain
        or (own.placements[axis].is_replicate and (tensor, placed.dim) in rule.counted_dims)
        for tensor, (placed, own) in enumerate(zip((*operands, *results), layouts, strict=True))
    )


def _options(rule: Rule, extent: int, pads: Pads = _can_pad) -> list[AxisRole]:
    """Return the roles of an axis of ``extent`` ranks; an axis of one rank has only ``None``."""
    if extent == 1:
        return [None]
    factors = range(len(rule.factors))
    splits = [index for index in factors if _splits(rule, index, [extent], pads)]
    return [None, *splits, *rule.linear, *_joint(rule, splits)]


def _joint(rule: Rule, splits: Sequence[int]) -> list[Joint]:
    """Return the groups of factors that an axis can split together, if it can split each."""
    return [group for group in rule.joint if set(group.factors) <= set(splits)]


def _splits(rule: Rule, number: int, extents: Sequence[int], pads: Pads) -> bool:
    """Return whether axes of ``extents`` can split a factor, padded or not."""
    factor, pieces = rule.factors[number], math.prod(extents)
    if factor.can_split and rule.is_in_units(number, extents):
        return factor.part(extents) >= factor.least
    return _cuts(factor, pieces) or _pads(factor, pieces, len(extents), pads)


def _cuts(factor: Factor, pieces: int) -> bool:
    """Return whether ``factor`` splits evenly into ``pieces`` parts of at least ``least`` points.

    A size of 0 cannot be split.
    """
    if not factor.can_split or not factor.size:
        return False
    size = factor.size.step if isinstance(factor.size, Open) else factor.size
    return size % pieces == 0 and size // pieces >= factor.least


def _pads(factor: Factor, pieces: int, axes: int, pads: Pads) -> bool:
    """Return whether ``factor`` can be split into ``pieces`` parts, the last of them padded."""
    size = factor.size
    if not factor.can_split or not factor.padded or not isinstance(size, int):
        return False
    return pads(size, pieces, axes) and part_of(size, pieces) >= factor.least


def _divides(rule: Rule, mesh: Mesh, roles: tuple[AxisRole, ...], pads: Pads = _can_pad) -> bool:
    """Return whether the axes that split each factor divide it together, or pad it."""
    extents: dict[int, list[int]] = {}
    for extent, role in zip(mesh.shape, roles, strict=True):
        for factor in split_by(role) if extent > 1 else ():
            extents.setdefault(factor, []).append(extent)
    return (
        _passes_round(rule, roles)
        and _nests(rule, mesh, roles)
        and all(_splits(rule, index, own, pads) for index, own in extents.items())
    )


def _passes_round(rule: Rule, roles: tuple[AxisRole, ...]) -> bool:
    """Return whether no axis alone splits a factor with parts that travel along other axes."""
    rings = (ring for ring in rule.rings if ring in roles)
    return not any(factor in roles for ring in rings for factor in ring.factors)


def _nests(rule: Rule, mesh: Mesh, roles: tuple[AxisRole, ...]) -> bool:
    """Return whether minor factors are only split where their major one is split to single points.

    The axes of the major factor come first, so that the parts are contiguous. If the major factor
    is whole, parts in blocks are possible, unless its points divide too and the minor factor is not
    crossing.
    """
    tensors, blocks = (*rule.operands, *rule.results), {own[:2] for own in rule.sections}
    for tensor, dim, minor in rule.minors:
        major = tensors[tensor][dim]
        if minor in roles and major is not None:
            axes = [axis for axis, role in enumerate(roles) if role == major]
            if not axes and (tensor, dim) in blocks:
                own = tuple(axis for axis, role in enumerate(roles) if role == minor)
                is_crossing = rule.factors[minor].crossing
                if not is_crossing and _cuts(rule.factors[major], mesh.extent(own)):
                    return False
                continue
            is_first = not axes or axes[-1] < roles.index(minor)
            extents, factor = mesh.extents(tuple(axes)), rule.factors[major]
            if not is_first or math.prod(extents) != factor.size:
                return False
            if rule.is_in_units(major, extents):
                return False
    return True


def _strategy(rule: Rule, roles: tuple[AxisRole, ...], mesh: Mesh) -> Strategy:
    operands = tuple(
        Layout(tuple(_operand_placement(rule, index, role) for role in roles))
        for index in range(len(rule.operands))
    )
    results = tuple(
        Layout(tuple(_result_placement(rule, index, role) for role in roles))
        for index in range(len(rule.results))
    )
    found = Strategy(roles, operands, results)
    return _in_pieces(rule, found, mesh) if rule.splits else found


def _in_pieces(rule: Rule, strategy: Strategy, mesh: Mesh) -> Strategy:
    """Return ``strategy`` with the blocks and the units of split dimensions.

    A dimension that merges two loops has blocks if only the minor loop is split. Units are stated
    where parts have whole ones. If a unit is one point, any part has, and the layout does not
    mention them. A block of fewer units than pieces that is a dimension of its own is whole along
    the last axes.
    """
    sections, merged = {own[:2] for own in rule.sections}, rule.merged_dims
    tensors, layouts = (*rule.operands, *rule.results), [*strategy.operands, *strategy.results]
    for tensor, own in rule.splits:
        dim, place = own.dim, (tensor, own.dim)
        number = tensors[tensor][dim]
        assert number is not None, "a dimension in blocks or units runs along a factor"
        factor, axes = rule.factors[number], strategy.axes_of(number)
        if len(own.units) > 1 and place in merged:
            axes = layouts[tensor].axes_splitting(dim)
            is_in_units = is_worth_units(own.units, mesh.extents(axes))
        else:
            is_in_units = rule.is_in_units(number, mesh.extents(axes))
        if own.units and is_in_units:
            if own.units != (factor.size,) or place in rule.counted_dims:
                layouts[tensor] = _in_units(layouts[tensor], own, axes, mesh)
        elif own.blocks:
            if place in sections:
                divides = not axes or place not in merged or len(own.units) > 1
            else:
                divides = factor.divides_in_blocks(mesh.extent(axes))
            if divides:
                layouts[tensor] = layouts[tensor].with_split(split(dim, own.blocks))
    operands = len(rule.operands)
    return Strategy(strategy.roles, tuple(layouts[:operands]), tuple(layouts[operands:]))


def _in_units(layout: Layout, own: Placement, axes: tuple[int, ...], mesh: Mesh) -> Layout:
    """Return ``layout`` with a dimension, which ``axes`` split, in units.

    It is a part of a dimension in units: its own units may divide, or have copies only.
    """
    if is_worth_units(own.units, mesh.extents(axes)):
        return layout.with_split(own)
    if own.units[0] < mesh.extent(axes):  # as all other blocks of the dimension
        first = next(n for n in range(len(axes)) if mesh.extent(axes[:n]) == own.units[0])
        layout = layout.replace(axes[first:], REPLICATE)
    return layout.with_split(split(own.dim, own.blocks))


def _operand_placement(rule: Rule, operand: int, role: AxisRole) -> Placement:
    if isinstance(role, Linear):
        return PARTIAL_SUM if operand in role.operands else REPLICATE
    for factor in split_by(role):
        dim = rule.dim_of(operand, factor)
        if dim is not None:
            return split(dim)
    reduction = rule.factors[role].reduction if isinstance(role, int) else None
    return partial(reduction) if reduction and operand in rule.additive else REPLICATE


def _result_placement(rule: Rule, result: int, role: AxisRole) -> Placement:
    if isinstance(role, Linear):
        return PARTIAL_SUM
    for factor in split_by(role):
        dim = rule.dim_of(len(rule.operands) + result, factor)
        if dim is not None:
            return split(dim)
    reduction = rule.factors[role].reduction if isinstance(role, int) else None
    return partial(reduction) if reduction and result not in rule.reduced else REPLICATE
