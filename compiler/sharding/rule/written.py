"""The rules that the IR holds, with what builds the op of one rank."""

from __future__ import annotations

from dataclasses import replace

from tensoropt.compiler.layout.rule import Factor, Rule
from tensoropt.compiler.layout.rule_text import NamedRule
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["WrittenRules"]


class WrittenRules:
    """Reads `topt.rule`; the same object for all ops that are equal and have equal rules.

    ``localize`` is code, which no attribute holds: a rule that says what that of the operator says,
    or less, has its ``localize``; any other is that of a plain copy with local shapes.
    """

    def __init__(self) -> None:
        self._parsed: dict[ir.Attribute, NamedRule] = {}
        self._found: dict[tuple[ir.Attribute, OpInfo], Rule] = {}

    def of(self, op: ir.Operation, info: OpInfo) -> Rule:
        """Return the rule of ``op``, which ``info`` describes.

        Raises:
            UserError: there is none, or one that the operator cannot follow; the message follows
            the name of the op.
        """
        if not keys.RULE.on(op.attributes):
            raise UserError("has no topt.rule, run add-rules first")
        attribute = op.attributes[keys.RULE.name]
        case = attribute, info
        if case not in self._found:
            if attribute not in self._parsed:
                self._parsed[attribute] = keys.RULE.kind.read(attribute)
            self._found[case] = _with_code(self._parsed[attribute].rule, rule_for(info))
        return self._found[case]


def _with_code(written: Rule, own: Rule) -> Rule:
    """Return the rule ``written`` on an op of rule ``own`` with the code it needs."""
    if replace(own, localize=None) == written:
        return own
    if own.localize is None:
        return written
    if not _says_less(written, own):
        raise UserError(
            "has a topt.rule that allows more than that of its operator, whose operation of one "
            "rank is no plain copy; expected one that splits less"
        )
    return replace(written, localize=own.localize)


def _says_less(written: Rule, own: Rule) -> bool:
    """Say whether all that ``written`` allows is allowed by ``own``, of the same factors."""
    if (written.operands, written.results) != (own.operands, own.results):
        return False
    if written.additive != own.additive or not set(written.linear) <= set(own.linear):
        return False
    if len(written.factors) != len(own.factors):
        return False
    return all(map(_splits_less, written.factors, own.factors))


def _splits_less(written: Factor, own: Factor) -> bool:
    if (written.size, written.reduction) != (own.size, own.reduction):
        return False
    if written.padded and not own.padded:
        return False
    return not written.can_split or (own.can_split and written.least >= own.least)
