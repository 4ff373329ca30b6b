"""Derivation of the blocks of dimensions.

All dimensions that ops pass on to each other form a group with the same blocks. Where a Split, a
Slice or packed attention cuts a group that has columns of a product with parameters, the group is a
packed projection, and it consists of the blocks between the cuts. So is a parameter that a Reshape
cuts into rows of a product, such as the gates of experts. If Concat joins such columns and
a product sums over the result, as over the channels of many CNNs, the result has blocks too. Parts
of both, and tensors that are joined from them, may have blocks. The ops after a convolution of
several groups have a block for each group. All other dimensions have none.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction

from tensoropt.compiler.layout.rule import Sections
from tensoropt.compiler.sharding.rule.blocks import MOST_BLOCKS, Fold, packed, passes_on, places_of
from tensoropt.compiler.sharding.rule.groups import Dim, Groups, Use
from tensoropt.runtime.layout.layout import Blocks

__all__ = ["Products", "find_blocks", "groups_of", "products_of"]

_ENDS = Fraction(0), Fraction(1)


@dataclass(frozen=True)
class _Run:
    """Group ``part`` is a run of group ``whole``; start and length are fractions of the whole.

    A ``stored`` whole is a parameter.
    """

    whole: Dim
    part: Dim
    start: Fraction
    length: Fraction
    joins: bool
    stored: bool


def groups_of(uses: Sequence[Use]) -> Groups:
    """Return the groups of dimensions that have the same blocks."""
    groups = Groups()
    for use in uses:
        for number in range(len(use.rule.factors)):
            if passes_on(use.info, use.rule, number):
                groups.join([use.dim(place) for place in places_of(use.rule, number)])
    return groups


@dataclass(frozen=True)
class Products:
    """The groups that are columns of a product with parameters, or packed operands; and its rows.

    ``parameters`` are the values that depend on parameters only.
    """

    parameters: Set[int]
    columns: Set[Dim]
    rows: Set[Dim]


def products_of(uses: Sequence[Use], groups: Groups, parameters: Set[int]) -> Products:
    """Return the columns and the rows of all products with parameters."""
    columns = {groups.find(dim) for use in uses for dim in _columns(use, parameters)}
    rows = {groups.find(dim) for use in uses for dim in _rows(use, parameters)}
    return Products(parameters, columns, rows)


def find_blocks(uses: Sequence[Use], groups: Groups, products: Products) -> list[Sections]:
    """Return the blocks of the dimensions of each op.

    Linear in the dimensions of all operands and results, times the cuts.
    """
    cut = (own.spans or own.read or own.cuts for use in uses if (own := packed(use.info)))
    stored = [use for use in uses if not products.parameters.isdisjoint(use.values[:1])]
    folded = [(use, fold) for use in stored for fold in _folds(use)]
    if not (any(cut) or folded or any(use.rule.minors and use.rule.sections for use in uses)):
        return [()] * len(uses)
    runs, cuts = list(_runs(uses, groups, products.parameters)), _read_cuts(uses, groups)
    rows = products.rows
    active = _active(products.columns, rows, runs, cuts)
    for use, fold in folded:
        if (count := use.size(fold.outer)) and groups.find_any([use.dim(fold.inner)]) in rows:
            whole = groups.find_any([use.dim(fold.whole)])
            cuts[whole] |= {Fraction(number, count) for number in range(1, count)}
            active.add(whole)
    _spread(runs, active, cuts)
    blocks = {group: _ratio(own) for group, own in cuts.items() if group in active}
    for group, found in _grouped(uses, groups):
        blocks.setdefault(group, found)
    return [_sections(use, groups, blocks) for use in uses]


def _runs(uses: Sequence[Use], groups: Groups, parameters: Set[int]) -> Iterator[_Run]:
    """Yield the relations between a dimension and its parts that ops make."""
    for use in uses:
        own = packed(use.info)
        for span in () if own is None else own.spans:
            whole, part = use.dim(span.whole), use.dim(span.part)
            size, length = use.size(span.whole), use.size(span.part)
            if whole is not None and part is not None and size and length:
                ends = Fraction(span.start, size), Fraction(length, size)
                joins = span.whole[0] >= len(use.info.operands)
                stored = not joins and whole[0] in parameters
                yield _Run(groups.find(whole), groups.find(part), *ends, joins, stored)


def _read_cuts(uses: Sequence[Use], groups: Groups) -> dict[Dim, set[Fraction]]:
    """Return the cuts between the blocks that ops read or pick, by group."""
    cuts: dict[Dim, set[Fraction]] = defaultdict(set)
    for use in uses:
        own = packed(use.info)
        for place, sizes in () if own is None else own.read:
            dim = use.dim(place)
            if dim is not None:
                ends = itertools.accumulate(sizes[:-1])
                cuts[groups.find(dim)] |= {Fraction(end, sum(sizes)) for end in ends}
        for place, start in () if own is None else own.cuts:
            dim, size = use.dim(place), use.size(place)
            if dim is not None and size and 0 < start < size:
                cuts[groups.find(dim)].add(Fraction(start, size))
    return cuts


def _columns(use: Use, parameters: Collection[int]) -> Iterator[Dim]:
    """Yield the dimensions of parameters that are columns of a product, or packed operands."""
    rule, own = use.rule, packed(use.info)
    for tensor, dims in enumerate(rule.operands):
        summed = any(f is not None and rule.factors[f].reduction == "sum" for f in dims)
        for dim, number in enumerate(dims) if use.values[tensor] in parameters and summed else ():
            if number is not None and rule.factors[number].reduction is None:
                yield from filter(None, [use.dim((tensor, dim))])
    read = [] if own is None else [place for place, _ in own.read]
    if any(use.values[t] in parameters and len(rule.operands[t]) > 1 for t, _ in read):
        yield from filter(None, map(use.dim, read))


def _folds(use: Use) -> Sequence[Fold]:
    """Return the dimensions of its operand that a Reshape cuts in two."""
    own = packed(use.info)
    folds = () if own is None else own.folds
    return [own for own in folds if own.whole[0] == 0 and own.size == use.size(own.inner)]


def _rows(use: Use, parameters: Collection[int]) -> Iterator[Dim]:
    """Yield the dimensions of parameters over which a product sums."""
    for tensor, dims in enumerate(use.rule.operands):
        for dim, number in enumerate(dims) if use.values[tensor] in parameters else ():
            if number is not None and use.rule.factors[number].reduction == "sum":
                yield from filter(None, [use.dim((tensor, dim))])


def _grouped(uses: Sequence[Use], groups: Groups) -> Iterator[tuple[Dim, Blocks]]:
    """Yield the results that merge groups and their points, with a block for each group.

    No number of ranks may divide both: else the ops after them could not have whole groups.
    """
    for use in uses:
        first = len(use.info.operands)
        for tensor, dim, blocks in use.rule.sections:
            at, size = use.dim((tensor, dim)), use.size((tensor, dim)) or 0
            if (tensor, dim) not in use.rule.merged_dims or tensor < first or at is None:
                continue
            if math.gcd(len(blocks), size // len(blocks)) == 1:
                yield groups.find(at), blocks


def _active(
    columns: Collection[Dim],
    rows: Collection[Dim],
    runs: Sequence[_Run],
    cuts: dict[Dim, set[Fraction]],
) -> set[Dim]:
    """Return packed projections, joined rows, their parts, and all that is joined from parts.

    A packed projection may be cut before its products, too.
    """
    parts = [run for run in runs if run.length < 1]
    cut = {run.whole for run in parts if not run.joins}
    joined = {run.whole for run in parts if run.joins and run.part in columns}
    active, size = {group for group in columns if group in cut or group in cuts}, -1
    active |= {group for group in rows if group in joined}
    active |= {run.whole for run in parts if run.stored and run.part in columns}
    while len(active) != size:
        size = len(active)
        for run in runs:
            if run.joins and run.part in active:
                active.add(run.whole)
            if run.whole in active:
                active.add(run.part)
    return active


def _spread(runs: Sequence[_Run], active: Collection[Dim], cuts: dict[Dim, set[Fraction]]) -> None:
    """Add the cuts that follow from the runs between active groups, in both directions."""
    own, size = [run for run in runs if run.whole in active and run.part in active], -1
    while size != (size := sum(map(len, cuts.values()))):
        for run in own:
            ends = {run.start + cut * run.length for cut in (*cuts[run.part], *_ENDS)}
            cuts[run.whole] |= {end for end in ends if 0 < end < 1}
            inner = ((cut - run.start) / run.length for cut in cuts[run.whole])
            cuts[run.part] |= {cut for cut in inner if 0 < cut < 1}
        if any(len(found) >= MOST_BLOCKS for found in cuts.values()):
            return


def _ratio(cuts: Collection[Fraction]) -> Blocks:
    """Return the blocks between ``cuts``, none if there are too many."""
    if not 0 < len(cuts) < MOST_BLOCKS:
        return ()
    ends = sorted((*cuts, *_ENDS))
    unit = math.lcm(*(end.denominator for end in ends))
    return tuple(int((end - start) * unit) for start, end in itertools.pairwise(ends))


def _sections(use: Use, groups: Groups, blocks: dict[Dim, Blocks]) -> Sections:
    """Return the blocks of the dimensions of an op that they divide, into more than one point."""
    found = []
    for tensor, dims in enumerate((*use.rule.operands, *use.rule.results)):
        for dim in range(len(dims)):
            at, size = use.dim((tensor, dim)), use.size((tensor, dim))
            own = () if at is None else blocks.get(groups.find(at), ())
            if own and size and size > len(own) and size % sum(own) == 0:
                found.append((tensor, dim, own))
    return tuple(found)
