"""Derivation of the units of dimensions.

The units of a group of dimensions are the points that a Reshape merges with others: 12 heads of 64
elements. In a packed projection each block has units: the heads of queries, of keys and of values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tensoropt.compiler.layout.sizes import ever_pads
from tensoropt.compiler.sharding.rule.blocks import packed
from tensoropt.compiler.sharding.rule.groups import Dim, Groups, Use
from tensoropt.compiler.sharding.rule.units import (
    Counts,
    block_ranges,
    merged_places,
    takes_units,
    takes_units_in_blocks,
    unpacked_places,
)
from tensoropt.runtime.layout.layout import Blocks, Units

__all__ = ["find_units"]


def find_units(uses: Sequence[Use], *, in_blocks: bool = True) -> list[Counts]:
    """Return the units of the factors of each op, for those that have any; rules have their blocks.

    Several numbers in a group give their greatest common divisor: parts that have whole units of 4
    have whole units of 12 and 16. Without ``in_blocks``, blocks have none. Linear in the dimensions
    of all operands and results.
    """
    found = [
        [n for n in range(len(use.rule.factors)) if takes_units(use.info, use.rule, n)]
        for use in uses
    ]
    along = [(use, n) for use, own in zip(uses, found, strict=True) for n in own]
    groups, units = Groups(), dict[Dim, int]()
    for use, number in along:
        groups.join([use.dim(place) for place in unpacked_places(use.info, use.rule, number)])
    for use, number in along:
        size, group = use.rule.factors[number].size, _group(use, number, groups)
        if isinstance(size, int) and merged_places(use.info, use.rule, number):
            units[group] = math.gcd(units.get(group, 0), size)
    packed_units = _units_in_blocks(uses, groups, units) if in_blocks else {}
    counts = list[Counts]()
    for use, own in zip(uses, found, strict=True):
        mine = dict[int, Units]()
        for number in own:
            count = units.get(_group(use, number, groups), 0)
            if count and not use.rule.factors[number].blocks and ever_pads(count):
                mine[number] = (count,)
        for number, (group, _) in _along_blocks(use, groups).items() if packed_units else ():
            if group in packed_units:
                mine[number] = packed_units[group]
        counts.append(tuple(sorted(mine.items())))
    return counts


def _group(use: Use, number: int, groups: Groups) -> Dim:
    """Return the group of the dimensions along a factor of an op."""
    places = unpacked_places(use.info, use.rule, number)
    return groups.find_any([use.dim(place) for place in places])


@dataclass
class _Packed:
    """A group of dimensions in blocks, and the units of each block that are known."""

    blocks: Blocks
    known: dict[int, int] = field(default_factory=dict)
    is_refused: bool = False

    @property
    def units(self) -> Units:
        """The units of all blocks, none if some cannot be known, or if they never matter.

        A block of a whole number of known units has these: a single head of keys.
        """
        sizes = [Fraction(self.blocks[n], count) for n, count in self.known.items() if count]
        if self.is_refused or not sizes:
            return ()
        counts = [
            Fraction(self.known.get(n, 0)) or block / sizes[0]
            for n, block in enumerate(self.blocks)
        ]
        if any(count.denominator > 1 for count in counts):
            return ()
        whole = tuple(map(int, counts))
        return whole if len(set(whole)) > 1 or ever_pads(whole[0]) else ()


def _units_in_blocks(
    uses: Sequence[Use], groups: Groups, units: dict[Dim, int]
) -> dict[Dim, Units]:
    """Return the units of the blocks of each group, for groups where all blocks have some.

    They are known where an op cuts out a block of heads, merges the points of all blocks, or reads
    the blocks. All ops along the group must allow units.
    """
    found = dict[Dim, _Packed]()
    for use in uses:
        for number, (group, blocks) in _along_blocks(use, groups).items():
            own = found.setdefault(group, _Packed(blocks))
            if takes_units_in_blocks(use.info, use.rule, number):
                _note_units(own.known, use, number, groups, units)
            else:
                own.is_refused = True
    for group, own in found.items():
        each = Fraction(units.get(group, 0), sum(own.blocks))
        for number, block in enumerate(own.blocks) if each else ():
            own.known.setdefault(number, int(block * each))
    return {group: counts for group, own in found.items() if (counts := own.units)}


def _along_blocks(use: Use, groups: Groups) -> dict[int, tuple[Dim, Blocks]]:
    """Return the group and the blocks of each factor on which an op has, cuts or reads blocks.

    The dimension in most blocks decides both.
    """
    found = dict[int, tuple[Dim, Blocks]]()
    tensors = (*use.rule.operands, *use.rule.results)
    for tensor, dim, blocks in use.rule.blocks:
        at, number = use.dim((tensor, dim)), tensors[tensor][dim]
        if at is None or number is None:
            continue
        if number not in found or len(blocks) > len(found[number][1]):
            found[number] = groups.find(at), blocks
    return found


def _note_units(
    known: dict[int, int], use: Use, number: int, groups: Groups, units: dict[Dim, int]
) -> None:
    """Add the units of blocks that an op cuts out or reads along a factor."""
    ranges, own = block_ranges(use.info, use.rule, number), packed(use.info)
    for place, each in ranges.items():
        at = use.dim(place)
        if len(each) == 1 and at is not None:
            known[each.start] = units.get(groups.find(at), 0)
    if ranges and own is not None:
        known.update(enumerate(own.units))
