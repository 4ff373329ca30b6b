"""Rules in blocks: ops on dimensions that consist of blocks, as in packed projections.

A dimension of `[q | k | v]` has blocks; each rank has its piece of every block. Where an op passes
a dimension on, its factor has the blocks. Where an op cuts or joins blocks (Split, Slice, Concat),
or reads them (packed attention), the factor is contiguous in some tensors and in blocks in others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce

from tensoropt.compiler.layout.rule import Dims, Factor, Rule, Sections
from tensoropt.compiler.sharding.rule.local_op import Localize, LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo, Shape
from tensoropt.runtime.layout.layout import Blocks, Units, ratio_of

__all__ = [
    "MOST_BLOCKS",
    "Fold",
    "Packed",
    "Place",
    "Span",
    "local_start",
    "packed",
    "packing",
    "passes_on",
    "places_of",
    "reads_layouts",
    "rule_in_blocks",
    "shape_of",
    "without_group_blocks",
]

Place = tuple[int, int]
"""A tensor of an op, operands before results, and one of its dimensions."""

MOST_BLOCKS = 64
"""Dimensions of more blocks are left contiguous: their pieces would be small."""

_CONVOLUTIONS = frozenset(("Conv", "ConvTranspose"))

_PACKED_BITS = "com.microsoft.MatMulNBits"

_MATRIX = 2
"""The dimensions of a matrix."""

_POSITIONLESS = frozenset(("Reshape", "Squeeze"))
"""Operators with code for a rank that is right for any part, contiguous or not."""

_ALL_FACTORS = _POSITIONLESS | {"Einsum"}
"""Operators with such code along all factors."""

_NORMALISING = frozenset(("LogSoftmax", "Softmax"))

_MERGING = _POSITIONLESS | _CONVOLUTIONS | {"Flatten", "Unsqueeze", _PACKED_BITS}
"""Operators with factors that are the major loop of a dimension."""


@dataclass(frozen=True)
class Span:
    """Dimension ``part`` is a run of elements of dimension ``whole`` that begins at ``start``."""

    whole: Place
    part: Place
    start: int


@dataclass(frozen=True)
class Fold:
    """Dimension ``whole`` is dimensions ``outer`` and ``inner`` merged, and maybe more after them.

    If each index of ``outer`` is a block of ``whole``, a piece of each block is a piece of
    ``inner``. Only the major ``size`` points of ``inner`` may be in ``whole``.
    """

    whole: Place
    outer: Place
    inner: Place
    size: int


@dataclass(frozen=True)
class Packed:
    """The blocks that an op cuts, joins or reads.

    ``spans`` relate dimensions; one new factor runs along all of them, and ``localize`` builds the
    op of one rank. ``read`` has the sizes of the blocks of dimensions that factor ``factor`` reads.
    The blocks have ``units`` of the factor, unless the dimensions merge it with a ``minor`` one.
    ``cuts`` has (dimension, first index of a block) of dimensions that stay whole. ``folds`` may
    become new factors.
    """

    spans: tuple[Span, ...] = ()
    localize: Localize | None = None
    read: tuple[tuple[Place, tuple[int, ...]], ...] = ()
    factor: int = 0
    units: Units = ()
    minor: int | None = None
    cuts: tuple[tuple[Place, int], ...] = ()
    folds: tuple[Fold, ...] = ()


_Maker = Callable[[OpInfo], Packed | None]
_MAKERS: dict[str, _Maker] = {}


def packing(*names: str) -> Callable[[_Maker], _Maker]:
    """Register the decorated function, which returns the blocks of the operators ``names``."""

    def register(maker: _Maker) -> _Maker:
        for name in names:
            assert name not in _MAKERS, f"{name} has blocks already"
            _MAKERS[name] = maker
        return maker

    return register


@cache
def packed(info: OpInfo) -> Packed | None:
    """Return the blocks that an op cuts, joins or reads; ``None`` for most ops."""
    maker = _MAKERS.get(info.name)
    return maker(info) if maker is not None and info.is_ranked else None


def passes_on(info: OpInfo, rule: Rule, number: int) -> bool:
    """Return whether an op may have any blocks along factor ``number``.

    Its points must be independent, or only summed up: a rank then computes any of them.
    """
    factor = rule.factors[number]
    if not factor.can_split or not isinstance(factor.size, int) or factor.least != 1:
        return False
    if rule.localize is not None and not _is_positionless(info, rule, number):
        return False
    places = places_of(rule, number)
    if any((tensor, dim) in places for tensor, dim, _ in rule.sections):
        return False
    sizes = {shape_of(info, tensor)[dim] for tensor, dim in places}
    return info.name in _MERGING or sizes == {factor.size}


def reads_layouts(info: OpInfo, rule: Rule) -> bool:
    """Return whether the code for a rank follows from layouts, and not from sizes of factors."""
    return rule.localize is None or info.name in _ALL_FACTORS | _NORMALISING


def _is_positionless(info: OpInfo, rule: Rule, number: int) -> bool:
    """Return whether code for a rank is right for any part along factor ``number``.

    Of a convolution, these factors are the samples, the channels and, of a single group, the
    inputs. Of a product with packed bits they are the columns: ranks exchange the rest of
    quantisation blocks. Of matrices that are picked from a stack they are the dimensions of a
    matrix, and of a softmax those along which ranks reduce nothing.
    """
    if info.name == _PACKED_BITS:
        return number < 1
    if info.name in _CONVOLUTIONS:
        return number < (3 if info.attribute("group", 1) == 1 else 2)
    if info.name == "Gather":
        return info.rank(0) > _MATRIX and number < info.rank(0) - 1
    if info.name in _NORMALISING:
        return all(number not in step.factors for step in rule.inner)
    return info.name in _ALL_FACTORS


def places_of(rule: Rule, number: int) -> list[Place]:
    """Return the dimensions that run along a factor."""
    tensors = enumerate((*rule.operands, *rule.results))
    return [(t, dim) for t, dims in tensors for dim, own in enumerate(dims) if own == number]


@cache
def rule_in_blocks(info: OpInfo, rule: Rule, blocks: Sections) -> Rule:
    """Return ``rule`` with dimensions that consist of ``blocks``, wherever the op allows it.

    Other dimensions are unchanged.
    """
    given = {(tensor, dim): own for tensor, dim, own in blocks}
    factors = list(rule.factors)
    for number, factor in enumerate(factors):
        own = {given.get(place, ()) for place in places_of(rule, number)}
        if len(own) == 1 and own != {()} and passes_on(info, rule, number):
            factors[number] = replace(factor, blocks=own.pop())
    found, own_blocks = replace(rule, factors=tuple(factors)), packed(info)
    if own_blocks is None:
        return found
    if own_blocks.read:
        return _with_read(found, own_blocks, given)
    if own_blocks.folds:
        return reduce(lambda own, fold: _with_fold(info, own, fold, given), own_blocks.folds, found)
    return _with_spans(info, found, own_blocks, given)


def local_start(local: LocalOp, span: Span) -> int:
    """Return the place at which the blocks of a span begin in a rank's part of the whole."""
    (tensor, dim), strategy = span.whole, local.strategy
    size = shape_of(local.info, tensor)[dim] or 0
    layout = (*strategy.operands, *strategy.results)[tensor]
    own = layout.division(dim, size, local.mesh)
    return own.starts[replace(own, pieces=1).starts.index(span.start)]


def without_group_blocks(rule: Rule) -> Rule:
    """Return ``rule`` without the blocks of dimensions that merge two loops."""
    sections = tuple(own for own in rule.sections if own[:2] not in rule.merged_dims)
    return rule if sections == rule.sections else replace(rule, sections=sections)


def _with_fold(info: OpInfo, rule: Rule, fold: Fold, given: dict[Place, Blocks]) -> Rule:
    """Return ``rule`` with a factor along the inner dimension, if the outer indices are blocks.

    The outer dimension stays whole if some ranks divide both.
    """
    (tensor, dim), (outer, at) = fold.whole, fold.outer
    count, size = shape_of(info, outer)[at], fold.size
    blocks = given.get(fold.whole, ())
    if blocks != (1,) * (count or 0) or given.get(fold.inner):
        return rule
    factors, sides = list(rule.factors), [*map(list, (*rule.operands, *rule.results))]
    major = sides[tensor][dim]
    if major is None or sides[fold.inner[0]][fold.inner[1]] is not None:
        return rule
    minors, apart = rule.minors, math.gcd(len(blocks), size) == 1  # no ranks divide both
    factors[major] = replace(
        factors[major], can_split=factors[major].can_split and apart, blocks=()
    )
    if apart:
        minors = tuple(sorted((*minors, (tensor, dim, len(factors)))))
    else:
        sides[outer][at], sides[tensor][dim] = None, len(factors)
    sides[fold.inner[0]][fold.inner[1]] = len(factors)
    operands = len(rule.operands)
    return replace(
        rule,
        factors=(*factors, Factor(size, can_split=size > 1)),
        operands=tuple(map(tuple, sides[:operands])),
        results=tuple(map(tuple, sides[operands:])),
        sections=tuple(sorted((*rule.sections, (tensor, dim, blocks)))),
        minors=minors,
    )


def _with_spans(info: OpInfo, rule: Rule, own: Packed, given: dict[Place, Blocks]) -> Rule:
    """Return ``rule`` with a factor along all spans, if the blocks of both ends agree.

    Other factors along their dimensions are no longer split.
    """
    sizes = {
        place: _block_sizes(shape_of(info, place[0])[place[1]], given.get(place, ()))
        for span in own.spans
        for place in (span.whole, span.part)
    }
    if not own.spans or not all(sizes.values()):
        return rule
    if not all(_agree(sizes[s.whole], sizes[s.part], s.start) for s in own.spans):
        return rule
    common = math.gcd(*itertools.chain(*sizes.values()))
    number, factors = len(rule.factors), list(rule.factors)
    tensors = [*map(list, (*rule.operands, *rule.results))]
    for tensor, dim in sizes:
        if (displaced := tensors[tensor][dim]) is not None:
            factors[displaced] = replace(factors[displaced], can_split=False)
        tensors[tensor][dim] = number
    sections = tuple((*place, given[place]) for place in sorted(sizes) if given.get(place))
    return replace(
        rule,
        factors=(*factors, Factor(common, can_split=common > 1)),
        operands=tuple(map(tuple, tensors[: len(rule.operands)])),
        results=tuple(map(tuple, tensors[len(rule.operands) :])),
        localize=own.localize or rule.localize,
        sections=sections,
    )


def _with_read(rule: Rule, own: Packed, given: dict[Place, Blocks]) -> Rule:
    """Return ``rule`` with packed operands split along a factor, if they have its blocks."""
    operands: list[Dims] = list(rule.operands)
    sections: list[tuple[int, int, Blocks]] = []
    for (tensor, dim), sizes in own.read:
        if given.get((tensor, dim), ()) == ratio_of(sizes):
            dims = operands[tensor]
            assert dims[dim] is None, "a dimension runs along two factors"
            operands[tensor] = (*dims[:dim], own.factor, *dims[dim + 1 :])
            sections.append((tensor, dim, ratio_of(sizes)))
    return replace(rule, operands=tuple(operands), sections=tuple(sorted(sections)))


def _agree(whole: Sequence[int], part: Sequence[int], start: int) -> bool:
    """Return whether a part that begins at ``start`` has the blocks of its whole dimension."""
    ends = {*itertools.accumulate(whole, initial=0)}
    own = [*itertools.accumulate(part, initial=start)]
    return ends.intersection(range(own[0], own[-1] + 1)) == {*own}


def _block_sizes(size: int | None, blocks: Blocks) -> tuple[int, ...]:
    """Return the sizes of the blocks of a dimension, none if they do not divide it."""
    if size is None or size == 0 or size % (sum(blocks) or 1):
        return ()
    return tuple(size // sum(blocks) * own for own in blocks) or (size,)


def shape_of(info: OpInfo, tensor: int) -> Shape:
    """Return the shape of a tensor of an op, operands first; none for an omitted one."""
    found = (*info.operands, *info.results)[tensor]
    return () if found is None else found.shape
