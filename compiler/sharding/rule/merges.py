"""Dimensions that merge a batch with heads, as products of batches of matrices read them.

Such a dimension has a block for each sample, and each rank its heads of every sample. Unlike other
dimensions in blocks it may be split contiguously, too: by samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import chain

from tensoropt.compiler.layout.rule import Factor, InnerStep, Rule, Sections
from tensoropt.compiler.sharding.rule.blockings import Products
from tensoropt.compiler.sharding.rule.blocks import (
    Fold,
    Place,
    packed,
    passes_on,
    places_of,
    reads_layouts,
)
from tensoropt.compiler.sharding.rule.groups import Dim, Groups, Use
from tensoropt.compiler.sharding.rule.op_info import OpInfo

__all__ = ["find_merges", "merges_of", "rule_in_merges"]

_MOST_SAMPLES = 1024
"""Batches of more samples are not split by heads: their blocks would be small."""


def find_merges(uses: Sequence[Use], groups: Groups, products: Products) -> list[Sections]:
    """Return the dimensions of each op that merge samples with heads, in a block for each sample.

    Heads are columns or rows of products, and samples are not. Linear in the dimensions of all
    operands and results.
    """
    folds = [(use, fold) for use in uses for fold in _folds(use, groups, products)]
    if not folds:
        return [()] * len(uses)
    merged, samples = Groups(), dict[Dim, int]()
    for use in uses:
        for number in range(len(use.rule.factors)):
            if _is_passed_on(use.info, use.rule, number):
                merged.join([use.dim(place) for place in places_of(use.rule, number)])
    for use, fold in folds:
        samples.setdefault(merged.find_any([use.dim(fold.whole)]), use.size(fold.outer) or 0)
    return [_sections(use, merged, samples) for use in uses]


def _folds(use: Use, groups: Groups, products: Products) -> list[Fold]:
    """Return the dimensions of an op that merge samples with heads."""
    packing = packed(use.info)
    merges = []
    for fold in () if packing is None else packing.folds:
        inner, outer = (groups.find_any([use.dim(dim)]) for dim in (fold.inner, fold.outer))
        are_heads = inner in products.columns or inner in products.rows
        are_samples = outer not in products.columns and outer not in products.rows
        if are_heads and are_samples and 1 < (use.size(fold.outer) or 0) <= _MOST_SAMPLES:
            merges.append(fold)
    return merges


def _is_passed_on(info: OpInfo, rule: Rule, number: int) -> bool:
    """Return whether all dimensions along a factor merge the same loops, or none."""
    is_passed_on = reads_layouts(info, rule) and passes_on(info, rule, number)
    return is_passed_on and not _is_merged(info, rule, number)


def _is_merged(info: OpInfo, rule: Rule, number: int) -> bool:
    size, tensors = rule.factors[number].size, (*info.operands, *info.results)
    dims = ((tensors[tensor], dim) for tensor, dim in places_of(rule, number))
    return any(tensor is not None and tensor.shape[dim] != size for tensor, dim in dims)


def _sections(use: Use, merged: Groups, samples: dict[Dim, int]) -> Sections:
    sections = []
    for tensor, dims in enumerate((*use.rule.operands, *use.rule.results)):
        for dim in range(len(dims)):
            at, size = use.dim((tensor, dim)), use.size((tensor, dim)) or 0
            count = 0 if at is None else samples.get(merged.find(at), 0)
            if count and size > count and size % count == 0:
                sections.append((tensor, dim, (1,) * count))
    return tuple(sections)


@cache
def rule_in_merges(info: OpInfo, rule: Rule, merges: Sections) -> Rule:
    """Return ``rule`` with a factor over the heads of ``merges``, wherever the op allows it.

    The factor of such a dimension becomes the one over its samples.
    """
    samples_of = {(tensor, dim): len(blocks) for tensor, dim, blocks in merges}
    for number, factor in enumerate(rule.factors):
        places = places_of(rule, number)
        samples = {samples_of.get(place, 0) for place in places}
        is_merged = len(samples) == 1 and 0 not in samples and not factor.blocks
        if is_merged and _is_passed_on(info, rule, number):
            assert isinstance(factor.size, int), "a symbolic dimension merges samples with heads"
            heads = Factor(factor.size // samples.pop(), reduction=factor.reduction, crossing=True)
            rule = _with_heads(rule, number, heads, places)
    packing = packed(info)
    for fold in () if packing is None else packing.folds:
        (tensor, dim), (inner, at) = fold.whole, fold.inner
        sides = (*rule.operands, *rule.results)
        samples_factor = sides[tensor][dim]
        if samples_factor is None or sides[inner][at] is not None:
            continue
        if samples_of.get(fold.whole) == rule.factors[samples_factor].size:
            heads = Factor(fold.size, crossing=True)
            rule = _with_heads(rule, samples_factor, heads, [fold.whole], fold.inner)
    return rule


def _with_heads(
    rule: Rule, number: int, heads: Factor, places: Sequence[Place], alone: Place | None = None
) -> Rule:
    """Return ``rule`` with a factor ``heads`` that is minor to factor ``number`` at ``places``.

    It is the major one of dimension ``alone``. The work of the op stays the same.
    """
    factors, sides = list(rule.factors), [*map(list, (*rule.operands, *rule.results))]
    added, operands, whole = len(factors), len(rule.operands), factors[number]
    if alone is None:
        assert isinstance(whole.size, int) and isinstance(heads.size, int), "symbolic heads"
        factors[number] = replace(whole, size=whole.size // heads.size, padded=False)
    else:
        sides[alone[0]][alone[1]] = added
    factors.append(heads)
    size = factors[number].size
    blocks = (1,) * size if isinstance(size, int) else ()
    return replace(
        rule,
        factors=tuple(factors),
        operands=tuple(map(tuple, sides[:operands])),
        results=tuple(map(tuple, sides[operands:])),
        inner=tuple(_with_dim(step, number, added) for step in rule.inner),
        sections=tuple(sorted((*rule.sections, *((*place, blocks) for place in places)))),
        minors=tuple(sorted((*rule.minors, *((*place, added) for place in places)))),
    )


def _with_dim(step: InnerStep, number: int, heads: int) -> InnerStep:
    """Return an inner step on tensors along factor ``heads``, where they run along ``number``."""
    dims = [(own, heads) if own == number else (own,) for own in step.dims]
    return replace(step, dims=tuple(chain(*dims)))


def merges_of(rule: Rule) -> Sections:
    """Return the dimensions in blocks of a rule that merge samples with heads."""
    own = {(t, dim) for t, dim, minor in rule.minors if rule.factors[minor].crossing}
    return tuple(section for section in rule.sections if section[:2] in own)
