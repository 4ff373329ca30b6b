"""What many rules share: factors given by where they appear, axes, and types that add up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensoropt.compiler.layout.layout import Reduction
from tensoropt.compiler.layout.rule import Dims, Factor, InnerStep, Linear, Rule
from tensoropt.compiler.layout.sizes import Open, Size, ever_pads, largest
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo

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
    "present_factor",
    "rule_of",
]

SUMMABLE = frozenset(
    ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64")
)
"""Element types whose partial sums can be reduced; integers wrap around, so they add up too."""

_HARMLESS = frozenset(("float16", "bfloat16", "float32", "float64", "bool"))

_FILLED = frozenset(("int32", "int64"))

_PAD_SINCE = 9
"""The first opset in which there is a Where."""


@dataclass(frozen=True)
class FactorMap:
    """A factor by where it appears: the dimension it runs along in each operand and result.

    Its size is that of its dimensions; it can be split if they are static, equal and above 1, or
    open, known to be equal, and of sizes that have a common divisor.
    ``size`` overrides that for dimensions that merge several factors with this one as the major:
    it must divide all of them. ``can_split=False`` keeps it whole, ``least`` see :class:`Factor`.
    Where the op of one rank is built from its size it is ``counted``: an open one stays whole.
    ``padded`` says whether parts may have padding; left out, :func:`rule_of` knows. Whole numbers
    may have it where the op of one rank ``fills`` it.
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
        """Return the factor for the shapes of ``info``, of an op that ``copies`` itself."""
        sizes = [info.result_sizes(index)[dim] for index, dim in self.results.items()]
        sizes += [info.sizes(index)[dim] for index, dim in self.operands.items()]
        if self.size is not None:
            static = all(isinstance(size, int) for size in sizes)
            can_split = self.can_split and self.size > 1 and static
            return Factor(self.size, can_split, self.reduction, self.least)
        can_split = self.can_split and _can_split(sizes, counted=self.counted)
        padded = self.padded
        if padded is None:
            padded = copies and self.reduction is None and bool(self.results)
        size = largest(sizes)
        padded = padded and can_split and ever_pads(size) and self._may_pad(info)
        return Factor(size, can_split, self.reduction, self.least, padded)

    def _may_pad(self, info: OpInfo) -> bool:
        """Say whether padding of any content does no harm: no index, no divisor of whole numbers.

        It is also what reshards can pad and take off.
        """
        held = [info.operands[index] for index in self.operands]
        held += [info.results[index] for index in self.results]
        names = [tensor.dtype for tensor in held if tensor is not None]
        allowed = _HARMLESS | _FILLED if self.fills else _HARMLESS
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
    """Return the factor along the operands and results that are there; the others are dropped."""
    given = {i: dim for i, dim in operands.items() if info.operand(i) is not None}
    made = range(len(info.results))
    kept = {i: d for i, d in results.items() if i in made and info.results[i] is not None}
    return FactorMap(given, kept, size, reduction, can_split, counted=counted, padded=padded)


def aligned(info: OpInfo, index: int, dim: int, rank: int) -> dict[int, int]:
    """Return where operand ``index``, broadcast to ``rank`` dimensions from the right, runs along
    dimension ``dim`` of the whole: nowhere if it is omitted, too short or stretched from 1."""
    tensor = info.operand(index)
    own = -1 if tensor is None else dim - rank + tensor.rank
    return {index: own} if tensor is not None and own >= 0 and tensor.shape[own] != 1 else {}


def rule_of(
    info: OpInfo,
    factors: Sequence[FactorMap],
    *,
    linear: tuple[Linear, ...] = (),
    additive: Iterable[int] = (),
    localize: Localize | None = None,
    flops_per_point: float = 0.0,
    inner: tuple[InnerStep, ...] = (),
) -> Rule:
    """Return the rule of these factors; dimensions that no factor names are never split.

    What runs inside over no factors at all, as for a scalar, never runs.
    """
    operands, results = _unmarked(info.operands), _unmarked(info.results)
    for number, factor in enumerate(factors):
        _mark(operands, factor.operands, number)
        _mark(results, factor.results, number)
    return Rule(
        factors=tuple(factor.factor(info, copies=localize is None) for factor in factors),
        operands=tuple(map(_dims, operands)),
        results=tuple(map(_dims, results)),
        additive=frozenset(additive),
        linear=linear,
        localize=localize,
        flops_per_point=flops_per_point,
        inner=tuple(step for step in inner if step.factors),
    )


def _unmarked(tensors: Sequence[TensorInfo | None]) -> list[list[int | None]]:
    return [[None] * (0 if tensor is None else tensor.rank) for tensor in tensors]


def _mark(sides: Sequence[list[int | None]], places: Mapping[int, int], number: int) -> None:
    for index, dim in places.items():
        assert sides[index][dim] is None, f"dimension {dim} runs along two factors"
        sides[index][dim] = number


def _dims(marks: list[int | None]) -> Dims:
    return tuple(marks)


def kept_factors(
    info: OpInfo, dims: Iterable[int], *, padded: bool | None = None
) -> list[FactorMap]:
    """Return a factor for each of ``dims``, the same one in operand 0 and in every result."""
    present = [index for index, result in enumerate(info.results) if result is not None]
    return [FactorMap({0: dim}, dict.fromkeys(present, dim), padded=padded) for dim in dims]


def linear_in(info: OpInfo, *groups: Sequence[int]) -> tuple[Linear, ...]:
    """Return the groups of operands as linear ones if their types and the results' add up."""
    if not adds_up(info):
        return ()
    return tuple(Linear(tuple(group)) for group in groups if _add_up(info, group))


def adds_up(info: OpInfo) -> bool:
    """Say whether partial sums of every result can be reduced."""
    return all(result is None or result.dtype in SUMMABLE for result in info.results)


def _add_up(info: OpInfo, group: Sequence[int]) -> bool:
    tensors = [info.operand(index) for index in group]
    return all(operand is not None and operand.dtype in SUMMABLE for operand in tensors)


def axis_of(info: OpInfo, default: int, rank: int, name: str = "axis") -> int:
    """Return the attribute ``name`` counted from the front of ``rank`` dimensions."""
    axis = int(info.attribute(name, default))
    return axis + rank if axis < 0 else axis
