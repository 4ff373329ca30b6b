"""Helpers shared by the rules: factor maps, broadcasting, attribute axes, and summable types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensoropt.compiler.layout.rule import Factor, InnerStep, Joint, Linear, Minor, Rule, Sections
from tensoropt.compiler.layout.sizes import Open, Size, ever_pads, largest
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.runtime.layout.layout import Reduction

if TYPE_CHECKING:
    from tensoropt.compiler.sharding.rule.local_op import Localize

__all__ = [
    "SUMMABLE",
    "FactorMap",
    "adds_up",
    "aligned",
    "axis_of",
    "kept_factors",
    "linear_in",
    "may_pad",
    "present_factor",
    "rule_of",
]

SUMMABLE = frozenset(
    ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64")
)
"""Element types with reducible partial sums; integer sums wrap around, which is exact."""

_HARMLESS = frozenset(("float16", "bfloat16", "float32", "float64", "bool"))

_FILLED = frozenset(("int8", "uint8", "int32", "int64"))

_PAD_SINCE = 9
"""First opset with Where, which fills padding."""


@dataclass(frozen=True)
class FactorMap:
    """A factor and the dimension of each operand and result that runs along it.

    Its size is the size of these dimensions. It can be split if they are static, equal, and above
    1, or if they are open, known to be equal, and have a common divisor. ``size`` overrides this
    for dimensions that merge several factors with this factor as the major one; it must divide all
    of them. ``can_split=False`` keeps the factor whole; for ``least`` see :class:`Factor`.

    Set ``counted`` if the local op is built from the size of the factor: an open factor then stays
    whole. ``padded`` allows parts with padding; if omitted, :func:`rule_of` decides, and merged
    dimensions have none. Integers may be padded only if the local op ``fills`` the padding.
    """

    operands: Mapping[int, int]
    results: Mapping[int, int] = field(default_factory=dict)
    size: int | None = None
    reduction: Reduction | None = None
    can_split: bool = True
    least: int = 1
    counted: bool = False
    padded: bool | None = None
    fills: bool = False

    def factor(self, info: OpInfo, *, copies: bool = False) -> Factor:
        """Return the factor for the shapes of ``info``; ``copies`` means a plain local copy."""
        sizes = [info.result_sizes(index)[dim] for index, dim in self.results.items()]
        sizes += [info.sizes(index)[dim] for index, dim in self.operands.items()]
        size = largest(sizes) if self.size is None else self.size
        padded = bool(self.padded)
        if self.size is not None:
            static = all(isinstance(size, int) for size in sizes)
            can_split = self.can_split and self.size > 1 and static
        else:
            can_split = self.can_split and _can_split(sizes, counted=self.counted)
            if self.padded is None:
                padded = copies and self.reduction is None and bool(self.results)
        tensors = [info.operands[index] for index in self.operands]
        tensors += [info.results[index] for index in self.results]
        padded = padded and can_split and ever_pads(size)
        padded = padded and may_pad(info, tensors, fills=self.fills)
        return Factor(size, can_split, self.reduction, self.least, padded)


def may_pad(info: OpInfo, tensors: Iterable[TensorInfo | None], *, fills: bool = False) -> bool:
    """Return whether arbitrary padding of ``tensors`` is harmless: no indices, no integer divisors.

    These are also the types that reshards can pad and unpad. Integers are harmless if the op
    ``fills`` their padding.
    """
    names = [tensor.dtype for tensor in tensors if tensor is not None]
    allowed = _HARMLESS | _FILLED if fills else _HARMLESS
    return info.standard_version >= _PAD_SINCE and allowed.issuperset(names)


def _can_split(sizes: Sequence[Size], *, counted: bool) -> bool:
    first = sizes[0]
    if any(size != first for size in sizes):
        return False
    if isinstance(first, Open):
        return first.can_split and not counted
    return first is not None and first > 1


def present_factor(
    info: OpInfo,
    operands: Mapping[int, int],
    results: Mapping[int, int],
    *,
    size: int | None = None,
    reduction: Reduction | None = None,
    can_split: bool = True,
    counted: bool = False,
    padded: bool | None = None,
) -> FactorMap:
    """Return the factor along the operands and results that are present."""
    present = {i: dim for i, dim in operands.items() if info.operand(i) is not None}
    numbers = range(len(info.results))
    kept = {i: d for i, d in results.items() if i in numbers and info.results[i] is not None}
    return FactorMap(present, kept, size, reduction, can_split, counted=counted, padded=padded)


def aligned(info: OpInfo, *indices: int, dim: int, rank: int) -> dict[int, int]:
    """Map operands to their dimensions at dimension ``dim`` of a result of rank ``rank``.

    Operands are broadcast from the right. The map lacks an operand that is omitted, has too few
    dimensions, or is stretched from size 1.
    """
    places = {}
    for index in indices:
        tensor = info.operand(index)
        own = -1 if tensor is None else dim - rank + tensor.rank
        if tensor is not None and own >= 0 and tensor.shape[own] != 1:
            places[index] = own
    return places


def rule_of(
    info: OpInfo,
    factors: Sequence[FactorMap],
    *,
    linear: tuple[Linear, ...] = (),
    joint: tuple[Joint, ...] = (),
    reduced: Iterable[int] = (),
    growing: Iterable[Sequence[int]] = (),
    additive: Iterable[int] = (),
    localize: Localize | None = None,
    flops_per_point: float = 0.0,
    inner: tuple[InnerStep, ...] = (),
    minors: Iterable[Minor] = (),
    sections: Sections = (),
) -> Rule:
    """Return the rule with these factors; a dimension on no factor is never split.

    Collectives over no factors, as for a scalar, are dropped because they never run.
    """
    operands, results = _unmarked(info.operands), _unmarked(info.results)
    for number, factor in enumerate(factors):
        _mark(operands, factor.operands, number)
        _mark(results, factor.results, number)
    return Rule(
        factors=tuple(factor.factor(info, copies=localize is None) for factor in factors),
        operands=tuple(map(tuple, operands)),
        results=tuple(map(tuple, results)),
        additive=frozenset(additive),
        linear=linear,
        joint=joint,
        reduced=frozenset(reduced),
        growing=tuple(map(tuple, growing)),
        localize=localize,
        flops_per_point=flops_per_point,
        inner=tuple(step for step in inner if step.factors or step.is_local),
        sections=sections,
        minors=tuple(sorted(minors)),
    )


def _unmarked(tensors: Sequence[TensorInfo | None]) -> list[list[int | None]]:
    return [[None] * (0 if tensor is None else tensor.rank) for tensor in tensors]


def _mark(sides: Sequence[list[int | None]], places: Mapping[int, int], number: int) -> None:
    for index, dim in places.items():
        assert sides[index][dim] is None, f"dimension {dim} runs along two factors"
        sides[index][dim] = number


def kept_factors(
    info: OpInfo, dims: Iterable[int], *, padded: bool | None = None
) -> list[FactorMap]:
    """Return one factor per dimension in ``dims``, shared by operand 0 and every result."""
    present = [index for index, result in enumerate(info.results) if result is not None]
    return [FactorMap({0: dim}, dict.fromkeys(present, dim), padded=padded) for dim in dims]


def linear_in(info: OpInfo, *groups: Sequence[int]) -> tuple[Linear, ...]:
    """Return ``groups`` as linear operand groups, without groups of types that do not add up.

    Return no groups if the types of the results do not add up.
    """
    if not adds_up(info):
        return ()
    tensors = [[info.operand(index) for index in group] for group in groups]
    return tuple(
        Linear(tuple(group))
        for group, own in zip(groups, tensors, strict=True)
        if all(tensor is not None and tensor.dtype in SUMMABLE for tensor in own)
    )


def adds_up(info: OpInfo) -> bool:
    """Return whether partial sums of every result can be reduced."""
    return all(result is None or result.dtype in SUMMABLE for result in info.results)


def axis_of(info: OpInfo, default: int, rank: int, name: str = "axis") -> int:
    """Return the axis attribute ``name``, counted from the front of ``rank`` dimensions."""
    axis = int(info.attribute(name, default))
    return axis + rank if axis < 0 else axis
