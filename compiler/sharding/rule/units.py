"""Rules in units: ops on dimensions that are split between units, such as heads, and not within.

Where a Reshape merges heads with their elements, the parts of the merged dimension must have whole
heads. If a number of ranks does not divide the heads, parts with padding do so only where all ops
along the way agree on the heads as units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.rule.blocks import Place, places_of
from tensoropt.compiler.sharding.rule.factors import may_pad
from tensoropt.compiler.sharding.rule.op_info import OpInfo

__all__ = ["Counts", "merged_places", "rule_in_units", "takes_units"]

Counts = tuple[tuple[int, int], ...]
"""Pairs of a factor and its number of units."""

_MERGING = frozenset(("Flatten", "Reshape"))
"""Operators that merge loops, and run on a part with padding as on any other."""


_HEADS = {
    "Attention": 1,
    "RotaryEmbedding": 1,
    "com.microsoft.GroupQueryAttention": 1,
    "com.microsoft.MultiHeadAttention": 1,
    "com.microsoft.RotaryEmbedding": 1,
}
"""Factors over heads, which are independent: a part may have any number of them."""

_JOINED: dict[str, Callable[[OpInfo], bool]] = {
    "com.microsoft.GroupQueryAttention": lambda info: info.operand(1) is None,
    "com.microsoft.MultiHeadAttention": lambda info: info.operand(3) is not None,
}
"""Operators that may have an operand of several projections, so that each rank picks its heads."""


def takes_units(info: OpInfo, rule: Rule, number: int) -> bool:
    """Return whether an op may have any units along factor ``number``.

    It may have any padding there, and the dimensions along it may merge it with others only in
    operators that keep the order of elements, or along heads.
    """
    factor = rule.factors[number]
    if not factor.can_split or not isinstance(factor.size, int) or factor.least != 1:
        return False
    if factor.padded:
        return not merged_places(info, rule, number)
    merges = info.name in _MERGING and bool(merged_places(info, rule, number))
    tensors = (*info.operands, *info.results)
    own = (tensors[tensor] for tensor, _ in places_of(rule, number))
    return (merges or _has_any_heads(info, number)) and may_pad(info, own)


def _has_any_heads(info: OpInfo, number: int) -> bool:
    """Return whether a factor is one over heads, and all operands have heads of one projection."""
    joined = _JOINED.get(info.name)
    return _HEADS.get(info.name) == number and (joined is None or not joined(info))


def merged_places(info: OpInfo, rule: Rule, number: int) -> list[Place]:
    """Return the dimensions that merge factor ``number``, of a known size, with others."""
    size, tensors = rule.factors[number].size, (*info.operands, *info.results)
    places = ((place, tensors[place[0]]) for place in places_of(rule, number))
    return [place for place, own in places if own is not None and own.shape[place[1]] != size]


@cache
def rule_in_units(info: OpInfo, rule: Rule, units: Counts) -> Rule:
    """Return ``rule`` with the units of each factor, where the op allows it."""
    factors, merged = list(rule.factors), list(rule.merged)
    for number, own in units:
        factor = factors[number]
        if factor.blocks or not takes_units(info, rule, number):
            continue
        factors[number] = replace(factor, units=own)
        if own == factor.size:
            merged += [(*place, own) for place in merged_places(info, rule, number)]
    return replace(rule, factors=tuple(factors), merged=tuple(sorted(merged)))
