"""Reader of the rules in the IR, with the builders of their local ops."""

from __future__ import annotations

from dataclasses import replace

from tensoropt.compiler.layout.rule import Factor, Rule
from tensoropt.compiler.layout.rule_text import NamedRule
from tensoropt.compiler.sharding.rule.blocks import rule_in_blocks, without_group_blocks
from tensoropt.compiler.sharding.rule.merges import merges_of, rule_in_merges
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.sharding.rule.units import rule_in_units
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["RuleReader"]


class RuleReader:
    """Reads `topt.rule`; equal ops with equal rules share one object.

    ``localize`` is code, which no attribute can store. A rule equal to the operator's own rule, or
    more restrictive, uses the operator's ``localize``. Any other rule implies a plain copy with
    local shapes.
    """

    def __init__(self) -> None:
        self._parsed: dict[ir.Attribute, NamedRule] = {}
        self._found: dict[tuple[ir.Attribute, OpInfo], Rule] = {}

    def read(self, op: ir.Operation, info: OpInfo) -> Rule:
        """Return the rule of ``op``, described by ``info``.

        Raises:
            UserError: the op has no rule, or one that the operator cannot follow; the message
            continues the name of the op.
        """
        if not keys.RULE.on(op.attributes):
            raise UserError("has no topt.rule, run add-rules first")
        attribute = op.attributes[keys.RULE.name]
        case = attribute, info
        if case not in self._found:
            if attribute not in self._parsed:
                self._parsed[attribute] = keys.RULE.kind.read(attribute)
            written, own = self._parsed[attribute].rule, rule_for(info)
            if written.has_blocks:
                merges = merges_of(written)
                blocks = tuple(section for section in written.blocks if section not in merges)
                own = rule_in_merges(info, rule_in_blocks(info, own, blocks), merges)
            numbers = range(len(written.factors))
            units = ((number, written.units_of(number)) for number in numbers)
            if own_units := tuple(pair for pair in units if pair[1]):
                own = rule_in_units(info, own, own_units)
            self._found[case] = _with_localize(written, own)
        return self._found[case]


def _with_localize(written: Rule, own: Rule) -> Rule:
    """Return ``written`` with the ``localize`` it needs on an op with the rule ``own``."""
    if replace(own, localize=None) == written:
        return own
    if own.localize is None and not written.joint:
        return written
    if not _allows_less(written, own):
        raise UserError(
            "has a topt.rule that allows more than the rule of its operator, which is no plain "
            "copy on a rank; expected a rule that splits less"
        )
    return replace(written, localize=own.localize)


def _allows_less(written: Rule, own: Rule) -> bool:
    """Return whether ``own``, with the same factors, allows everything that ``written`` allows."""
    if (written.operands, written.results) != (own.operands, own.results):
        return False
    if (written.minors, written.counted) != (own.minors, own.counted):
        return False
    if written.sections not in (own.sections, without_group_blocks(own).sections):
        return False
    if written.additive != own.additive or not set(written.linear) <= set(own.linear):
        return False
    if (written.reduced, written.growing) != (own.reduced, own.growing):
        return False
    if not set(written.joint) <= set(own.joint):
        return False
    if len(written.factors) != len(own.factors):
        return False
    return all(map(_splits_less, written.factors, own.factors))


def _splits_less(written: Factor, own: Factor) -> bool:
    if (written.size, written.reduction) != (own.size, own.reduction):
        return False
    if (written.blocks, written.units) != (own.blocks, own.units):
        return False
    if written.padded and not own.padded:
        return False
    return not written.can_split or (own.can_split and written.least >= own.least)
