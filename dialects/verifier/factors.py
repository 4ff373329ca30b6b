"""Check of a rule against the operands and results of its operation."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.layout.rule import Dims, Factor
from tensoropt.compiler.layout.rule_text import NamedRule
from tensoropt.compiler.layout.sizes import Open
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.sizes import sizes_of_type
from tensoropt.dialects.topt.dialect import RuleAttr
from tensoropt.dialects.topt.rules import rule_of_attr
from tensoropt.runtime.layout.division import Division
from tensoropt.runtime.layout.layout import Blocks, Units, blocks_text, units_text

__all__ = ["rule_problem"]


def rule_problem(
    attribute: RuleAttr, operands: Sequence[ir.Type], results: Sequence[ir.Type]
) -> str | None:
    """Return an error about the rule of an operation with these types, or ``None``.

    The text continues the name of the rule.
    """
    try:
        named = rule_of_attr(attribute)
    except UserError as error:
        return str(error)
    rule = named.rule
    merged = {own[:2] for own in rule.minors} - {own[:2] for own in rule.counted if own[2][1:]}
    for tensor, dim, blocks in rule.sections:
        number = (*rule.operands, *rule.results)[tensor][dim]
        if number is None or rule.factors[number].blocks:
            return (
                f"has blocks {blocks_text(blocks)} on no factor, or on a factor with other blocks"
            )
        size = rule.factors[number].size
        if (tensor, dim) in merged and blocks != (1,) * (size if isinstance(size, int) else 0):
            return (
                f"has wrong blocks of two merged factors, expected one for each point of "
                f"{named.names[number]}, got: {blocks_text(blocks)}"
            )
    for number, factor in enumerate(rule.factors):
        if factor.units and not _has_units(factor):
            return (
                f"has a factor that its units do not divide, expected a multiple of "
                f"{units_text(factor.units)}, got: {named.names[number]}={factor.size}"
            )
    own_blocks = {own[:2]: own[2] for own in rule.blocks}
    for tensor, dim, units in rule.counted:
        number = (*rule.operands, *rule.results)[tensor][dim]
        own = own_blocks.get((tensor, dim), ())
        if number is None or not _may_have(rule.factors[number], units, own):
            return (
                f"has {units_text(units)} units in a dimension, expected the units of its factor "
                "or, on a factor without units, some for each of its blocks"
            )
    return _side_problem(named, "operand", rule.operands, operands) or _side_problem(
        named, "result", rule.results, results
    )


def _has_units(factor: Factor) -> bool:
    """Return whether the units of a factor divide its size, or the sizes of its blocks."""
    if not isinstance(factor.size, int):
        return False
    return Division(factor.size, 1, factor.blocks, factor.units).fits


def _may_have(factor: Factor, units: Units, blocks: Blocks) -> bool:
    """Return whether a dimension in ``blocks`` along ``factor`` may have ``units`` of its own."""
    if factor.units and len(units) == 1:
        return units == factor.units == (factor.size,)
    return not factor.blocks and len(units) == len(blocks or (1,))


def _side_problem(
    named: NamedRule, side: str, tensors: Sequence[Dims], types: Sequence[ir.Type]
) -> str | None:
    if len(tensors) != len(types):
        return f"has a wrong number of {side}s, expected {len(types)}, got: {len(tensors)}"
    for number, (dims, type_) in enumerate(zip(tensors, types, strict=True)):
        wrong = _tensor_problem(named, dims, type_)
        if wrong is not None:
            return f"does not fit {side} {number} of {type_}, {wrong}"
    return None


def _tensor_problem(named: NamedRule, dims: Dims, type_: ir.Type) -> str | None:
    if not isinstance(type_, ir.RankedTensorType):
        return f"expected 0 dimensions, got: {len(dims)}" if dims else None
    if len(dims) != type_.rank:
        return f"expected {type_.rank} dimensions, got: {len(dims)}"
    for number, factor in enumerate(dims):
        if factor is not None and not _fits(named.rule.factors[factor], type_, number):
            name, size = named.names[factor], named.rule.factors[factor].size
            return f"expected a size of {name} that divides dimension {number}, got: {size}"
    return None


def _fits(factor: Factor, type_: ir.RankedTensorType, dim: int) -> bool:
    """Return whether splitting ``factor`` splits the dimension; true for an unsplittable factor."""
    if not factor.can_split or not factor.size:
        return True
    if isinstance(factor.size, Open):
        size = sizes_of_type(type_)[dim]
        return isinstance(size, Open) and size.can_split and size.step % factor.size.step == 0
    return type_.is_dynamic_dim(dim) or type_.get_dim_size(dim) % factor.size == 0
