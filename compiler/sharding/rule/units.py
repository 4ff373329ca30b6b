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
from tensoropt.compiler.sharding.rule.blocks import Place, packed, places_of, shape_of
from tensoropt.compiler.sharding.rule.factors import may_pad
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.runtime.layout.division import Division
from tensoropt.runtime.layout.layout import Units

__all__ = [
    "Counts",
    "block_ranges",
    "merged_places",
    "rule_in_units",
    "takes_units",
    "takes_units_in_blocks",
    "unpacked_places",
]

Counts = tuple[tuple[int, Units], ...]
"""Pairs of a factor and its units."""

_MERGING = frozenset(("Flatten", "Reshape"))
"""Operators that merge loops, and run on a part with padding as on any other."""


_HEADS = {
    "Attention": 1,
    "com.microsoft.Attention": 1,
    "RotaryEmbedding": 1,
    "com.microsoft.GroupQueryAttention": 1,
    "com.microsoft.MultiHeadAttention": 1,
    "com.microsoft.RotaryEmbedding": 1,
}
"""Factors over heads, which are independent: a part may have any number of them."""

_JOINED: dict[str, Callable[[OpInfo], bool]] = {
    "com.microsoft.Attention": lambda info: True,
    "com.microsoft.GroupQueryAttention": lambda info: info.operand(1) is None,
    "com.microsoft.MultiHeadAttention": lambda info: info.operand(3) is not None,
}
"""Operators that may have an operand of several projections, so that each rank picks its heads."""


def takes_units(info: OpInfo, rule: Rule, number: int) -> bool:
    """Return whether an op may have any units along factor ``number``.

    It may have any padding there, and the dimensions along it may merge it with others only in
    operators that keep the order of elements, or along heads. Blocks that a Reshape folds have no
    padding.
    """
    factor = rule.factors[number]
    if info.name in _MERGING:
        folded = {own[:2] for own in rule.sections} - rule.merged_dims
        if not folded.isdisjoint(places_of(rule, number)):
            return False
    if not factor.can_split or not isinstance(factor.size, int) or factor.least != 1:
        return False
    if factor.padded:
        return not merged_places(info, rule, number)
    if factor.crossing:
        return False
    merges = _keeps_order(info, rule, number) and bool(merged_places(info, rule, number))
    tensors = (*info.operands, *info.results)
    own = (tensors[tensor] for tensor, _ in places_of(rule, number))
    return (merges or _has_any_heads(info, rule, number)) and may_pad(info, own)


def _keeps_order(info: OpInfo, rule: Rule, number: int) -> bool:
    """Return whether an op runs on a part with whole units of merged dimensions as on any other."""
    if info.name in _MERGING:
        return True
    places, factor = places_of(rule, number), rule.factors[number]
    crossing = {(t, dim) for t, dim, minor in rule.minors if rule.factors[minor].crossing}
    return factor.reduction is None and crossing.issuperset(places)


def _has_any_heads(info: OpInfo, rule: Rule, number: int) -> bool:
    """Return whether a factor is one over heads.

    An operand with heads of several projections must be split in their blocks.
    """
    joined = _JOINED.get(info.name)
    is_apart = joined is None or not joined(info) or bool(rule.sections)
    return _HEADS.get(info.name) == number and is_apart


def merged_places(info: OpInfo, rule: Rule, number: int) -> list[Place]:
    """Return the dimensions that merge factor ``number``, of a known size, with others."""
    size, tensors = rule.factors[number].size, (*info.operands, *info.results)
    places = ((place, tensors[place[0]]) for place in unpacked_places(info, rule, number))
    return [place for place, own in places if own is not None and own.shape[place[1]] != size]


def unpacked_places(info: OpInfo, rule: Rule, number: int) -> list[Place]:
    """Return the dimensions along a factor, without those in which an op reads packed blocks."""
    own, places = packed(info), places_of(rule, number)
    read = {place for place, _ in own.read} if own is not None else set[Place]()
    return [place for place in places if place not in read]


@cache
def rule_in_units(info: OpInfo, rule: Rule, units: Counts) -> Rule:
    """Return ``rule``, which has its blocks, with the units of each factor that may have any.

    For an op that cuts, joins or reads blocks they are the units of the whole dimension.
    """
    factors, counted, minors = list(rule.factors), list(rule.counted), list(rule.minors)
    for number, own in units:
        factor, ranges = factors[number], block_ranges(info, rule, number)
        if ranges and len(own) > 1:
            counted += [(*place, own[each.start : each.stop]) for place, each in ranges.items()]
            found = packed(info)
            if found is None or not found.read:
                factors[number], own = replace(factor, can_split=True), ()
            elif found.minor is not None:
                minors, own = [*minors, *((*place, found.minor) for place in ranges)], ()
            else:
                own = own[:1]
        if len(own) == len(factor.blocks or (1,)) and takes_units(info, rule, number):
            factors[number] = replace(factor, units=own)
            if own == (factor.size,):
                counted += [(*place, own) for place in merged_places(info, rule, number)]
    return replace(
        rule,
        factors=tuple(factors),
        counted=tuple(sorted(counted)),
        minors=tuple(sorted(minors)),
    )


def takes_units_in_blocks(info: OpInfo, rule: Rule, number: int) -> bool:
    """Return whether an op may have units along a factor that has, cuts, joins or reads blocks.

    Copies would count twice in a sum.
    """
    factor = rule.factors[number]
    if factor.blocks:
        return factor.reduction is None and takes_units(info, rule, number)
    return bool(block_ranges(info, rule, number))


def block_ranges(info: OpInfo, rule: Rule, number: int) -> dict[Place, range]:
    """Return the blocks of each dimension along a factor on which an op cuts or reads blocks.

    They are counted as in the whole dimension. Empty for other factors.
    """
    own, sections = packed(info), {found[:2]: found[2] for found in rule.sections}
    along, found = set(places_of(rule, number)), dict[Place, range]()
    if own is None or not along & sections.keys():
        return {}
    for place, _ in own.read if own.units else ():
        if place in sections:
            found[place] = range(len(sections[place]))
    for span in own.spans:
        if span.whole not in sections:
            return {}
        blocks, size = sections[span.whole], shape_of(info, span.whole[0])[span.whole[1]] or 0
        first = Division(size, 1, blocks).starts.index(span.start)
        found[span.whole] = range(len(blocks))
        found[span.part] = range(first, first + len(sections.get(span.part, (1,))))
    return found
