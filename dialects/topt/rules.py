"""Conversion of rules to and from the IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensoropt.compiler.layout.rule_text import NamedRule, RuleText, read_rule
from tensoropt.compiler.support.errors import UserError, did_you_mean
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.dialect import RuleAttr

__all__ = ["rule_attr", "rule_of_attr"]


def rule_attr(rule: NamedRule) -> RuleAttr:
    """Return the attribute of ``rule``, which has all its fields except ``localize``."""
    text, extras = rule.text, dict[str, ir.Attribute]()
    if text.linear:
        extras["linear"] = _groups_attr(text.linear)
    if text.joint:
        extras["joint"] = _groups_attr(text.joint)
    if text.reduced:
        extras["reduced"] = _ints_attr(text.reduced)
    if text.growing:
        extras["growing"] = _groups_attr(text.growing)
    if text.additive:
        extras["additive"] = _ints_attr(text.additive)
    if text.inner:
        extras["inner"] = _texts_attr(text.inner)
    if text.flops != RuleText.flops:
        extras["flops"] = ir.FloatAttr.get(ir.F64Type.get(), text.flops)
    attribute: RuleAttr = RuleAttr.get(
        ir.StringAttr.get(text.map), _texts_attr(text.factors), ir.DictAttr.get(extras)
    )
    return attribute


def rule_of_attr(attribute: RuleAttr) -> NamedRule:
    """Return the rule of a `#topt.rule` attribute; raises UserError if it is malformed."""
    extras = {item.name: item.attr for item in ir.DictAttr(attribute.extras)}
    for name in extras:
        if name not in _EXTRAS:
            raise UserError(
                f"has an unknown part, expected one of {', '.join(_EXTRAS)}, got: '{name}'"
                f"{did_you_mean(name, _EXTRAS)}"
            )
    parts = {name: _EXTRAS[name](name, value) for name, value in extras.items()}
    factors = _texts("factors", ir.ArrayAttr(attribute.factors))
    return read_rule(RuleText(str(ir.StringAttr(attribute.map).value), factors, **parts))


def _ints_attr(values: Sequence[int]) -> ir.Attribute:
    return ir.DenseI64ArrayAttr.get(list(values))


def _groups_attr(groups: Sequence[Sequence[int]]) -> ir.Attribute:
    return ir.ArrayAttr.get([_ints_attr(group) for group in groups])


def _texts_attr(texts: Sequence[str]) -> ir.Attribute:
    return ir.ArrayAttr.get([ir.StringAttr.get(text) for text in texts])


def _ints(name: str, attribute: ir.Attribute) -> tuple[int, ...]:
    if not isinstance(attribute, ir.DenseI64ArrayAttr):
        raise UserError(f"has a wrong '{name}', expected array<i64>, got: {attribute}")
    return tuple(attribute)


def _groups(name: str, attribute: ir.Attribute) -> tuple[tuple[int, ...], ...]:
    if not isinstance(attribute, ir.ArrayAttr):
        raise UserError(f"has a wrong '{name}', expected a list of array<i64>, got: {attribute}")
    return tuple(_ints(name, group) for group in attribute)


def _texts(name: str, attribute: ir.Attribute) -> tuple[str, ...]:
    texts = list(attribute) if isinstance(attribute, ir.ArrayAttr) else [attribute]
    found = tuple(str(text.value) for text in texts if isinstance(text, ir.StringAttr))
    if not isinstance(attribute, ir.ArrayAttr) or len(found) != len(texts):
        raise UserError(f"has wrong '{name}', expected a list of strings, got: {attribute}")
    return found


def _float(name: str, attribute: ir.Attribute) -> float:
    if not isinstance(attribute, ir.FloatAttr) or not 0 <= attribute.value < float("inf"):
        raise UserError(f"has wrong '{name}', expected an f64 of 0 or more, got: {attribute}")
    return float(attribute.value)


_EXTRAS: dict[str, Callable[[str, ir.Attribute], Any]] = {
    "linear": _groups,
    "joint": _groups,
    "reduced": _ints,
    "growing": _groups,
    "additive": _ints,
    "inner": _texts,
    "flops": _float,
}
