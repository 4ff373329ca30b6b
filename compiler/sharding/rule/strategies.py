"""What a rule offers on a mesh: every way to lay out an op's operands and results."""

from __future__ import annotations

from tensoropt.compiler.layout.layout import (
    PARTIAL_SUM,
    REPLICATE,
    Layout,
    Placement,
    partial,
    split,
)
from tensoropt.compiler.layout.mesh import Mesh, grouped
from tensoropt.compiler.sharding.rule.rule import Choice, Dims, Factor, Linear, Rule, Strategy

__all__ = ["axis_choices", "placements", "strategies", "strategy_of_choices"]


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
