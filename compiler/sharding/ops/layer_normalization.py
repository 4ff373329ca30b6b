"""Layer normalisations, also of sums: split statistics are reduced inside the local op."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.layout.rule import InnerStep, Rule
from tensoropt.compiler.sharding.rule.arithmetic import BROADCAST_VERSION, Arithmetic, sum_bytes
from tensoropt.compiler.sharding.rule.factors import (
    FactorMap,
    aligned,
    axis_of,
    present_factor,
    rule_of,
)
from tensoropt.compiler.sharding.rule.local_op import Localize, LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import window_loop
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import is_no_value

__all__ = [
    "EPSILON",
    "NORMALIZATION_FLOPS",
    "SKIP_EPSILON",
    "embedding",
    "inner_sum",
    "inverse_deviation",
    "layer",
    "quantized_embedding",
    "skip",
    "split_axes",
]

NORMALIZATION_FLOPS = 8.0
"""Two sums, a difference, a square, a product with the inverse deviation, scale, and bias."""

EPSILON = 1e-5
"""Default of ONNX."""

SKIP_EPSILON = 1e-12
"""Default of ONNX Runtime for normalised sums."""

# Operators that subtract no mean.
_ROOT_MEAN_SQUARE = frozenset(
    (
        "RMSNormalization",
        "SimplifiedLayerNormalization",
        "com.microsoft.SkipSimplifiedLayerNormalization",
    )
)


@sharding_rule("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def layer(info: OpInfo) -> Rule:
    """Split every dimension; a normalised dimension needs all-reduces inside.

    Scale and bias align from the right; the statistics among the results have size 1 in the
    normalised dimensions.
    """
    rank = len(info.shape(0))
    return _rule(info, range(axis_of(info, -1, rank), rank), _localize_layer)


@sharding_rule(
    "com.microsoft.SkipLayerNormalization", "com.microsoft.SkipSimplifiedLayerNormalization"
)
def skip(info: OpInfo) -> Rule | None:
    """Split every dimension of operands that are added before the sum is normalised.

    ``None`` if training statistics are requested, because no CPU runtime returns them.
    """
    if any(result is not None for result in info.results[1:3]):
        return None
    rank = len(info.shape(0))
    return _rule(info, range(rank - 1, rank), _localize_skip)


@sharding_rule("com.microsoft.EmbedLayerNormalization")
def embedding(info: OpInfo) -> Rule:
    """Split batch and rows of a normalised sum of embeddings; the tables stay whole.

    Rows stay whole if positions are counted from the first row, or if the lengths are among the
    results.
    """
    batch = {0: 0, 1: 0, 7: 0, **aligned(info, 8, dim=0, rank=2)}
    counted = info.operand(8) is None or (len(info.results) > 1 and info.results[1] is not None)
    rows = dict.fromkeys((0, 1, 7, 8), 1)
    factors = [
        present_factor(info, batch, dict.fromkeys(range(3), 0)),
        present_factor(info, rows, {0: 1, 2: 1}, can_split=not counted),
        FactorMap({}, {0: 2}, can_split=False),
    ]
    return rule_of(info, factors, flops_per_point=NORMALIZATION_FLOPS + 2.0)


@sharding_rule("com.microsoft.QEmbedLayerNormalization")
def quantized_embedding(info: OpInfo) -> Rule:
    """Split the batch of a normalised sum of embeddings; tables are whole, and rows are counted."""
    batch = present_factor(info, {0: 0, 1: 0, 7: 0}, {0: 0, 1: 0})
    whole = window_loop(info.result_sizes()[1:])
    return rule_of(info, [batch, whole], flops_per_point=NORMALIZATION_FLOPS + 8.0)


def _rule(info: OpInfo, reduced: range, localize: Localize) -> Rule:
    shape, parameters = info.shape(0), range(1, len(info.operands))
    # The expanded op divides by the number of reduced elements, which must be known and not 0.
    known = all(shape[dim] for dim in reduced)
    can_split = info.standard_version >= BROADCAST_VERSION and known
    factors = [
        FactorMap(
            {0: dim, **aligned(info, *parameters, dim=dim, rank=len(shape))},
            _statistics(info, dim, reduced),
            can_split=can_split or dim not in reduced,
            padded=dim not in reduced,
        )
        for dim in range(len(shape))
    ]
    sums = 1 if info.name in _ROOT_MEAN_SQUARE else 2
    inner = (inner_sum(info, reduced),) * sums
    return rule_of(
        info, factors, localize=localize, flops_per_point=NORMALIZATION_FLOPS, inner=inner
    )


def _statistics(info: OpInfo, dim: int, reduced: range) -> dict[int, int]:
    """Map each result to its dimension at ``dim``; statistics have it only if it is not reduced."""
    rank, places = len(info.shape(0)), {}
    for index, result in enumerate(info.results):
        if result is not None and (dim not in reduced or index in (0, 3)):
            places[index] = dim
            assert result.rank == rank
    return places


def inner_sum(info: OpInfo, reduced: range) -> InnerStep:
    """Return the all-reduce of a sum over the dimensions ``reduced`` of operand 0."""
    tensor, kept = info.operand(0), range(len(info.shape(0)))
    assert tensor is not None
    item_bytes = sum_bytes(tensor.dtype, tensor.item_bytes)
    return InnerStep(tuple(reduced), tuple(d for d in kept if d not in reduced), item_bytes)


def split_axes(local: LocalOp, reduced: Sequence[int]) -> tuple[int, ...]:
    """Return the mesh axes that split any of the factors ``reduced``."""
    return tuple(sorted(axis for dim in reduced for axis in local.axes(dim)))


def _localize_layer(local: LocalOp) -> list[ir.Value]:
    rank = len(local.info.shape(0))
    reduced = range(axis_of(local.info, -1, rank), rank)
    if not split_axes(local, reduced):
        return local.clone()
    y, statistics = _normalize(local, local.operands[0], reduced, local.operands[1:3])
    make, infos = Arithmetic(local), local.info.results[1:]
    return [
        y,
        *(
            local.no_value() if info is None else make.as_result(value, index)
            for index, (info, value) in enumerate(zip(infos, statistics, strict=False), 1)
        ),
    ]


def _localize_skip(local: LocalOp) -> list[ir.Value]:
    last = len(local.info.shape(0)) - 1
    reduced = range(last, last + 1)
    if not split_axes(local, reduced):
        return local.clone()
    make = Arithmetic(local)
    bias_at = 3 if local.info.name in _ROOT_MEAN_SQUARE else 4
    terms = [make.wide(local.operands[i]) for i in (0, 1, bias_at) if local.info.operand(i)]
    total = terms[0]
    for term in terms[1:]:
        total = make.binary("Add", total, term)
    y, _ = _normalize(local, total, reduced, local.operands[2:bias_at])
    # Without training statistics, the only other result is the sum.
    rest = enumerate(local.info.results[1:], 1)
    return [y, *(local.no_value() if r is None else make.as_result(total, i) for i, r in rest)]


def _normalize(
    local: LocalOp, x: ir.Value, reduced: range, parameters: Sequence[ir.Value]
) -> tuple[ir.Value, list[ir.Value]]:
    """Return ``x`` normalised, scaled, and biased, and its mean, if any, and inverse deviation."""
    make, axes = Arithmetic(local), split_axes(local, reduced)
    x, statistics = make.wide(x), list[ir.Value]()
    if local.info.name not in _ROOT_MEAN_SQUARE:
        statistics.append(make.mean(x, reduced, axes))
        x = make.binary("Sub", x, statistics[0])
    inverse = inverse_deviation(make, x, reduced, axes)
    y = make.as_result(make.binary("Mul", x, inverse))
    for op_type, parameter in zip(("Mul", "Add"), parameters, strict=False):
        if not is_no_value(parameter):
            y = make.binary(op_type, y, parameter)
    return y, [*statistics, inverse]


def inverse_deviation(
    make: Arithmetic, x: ir.Value, dims: range, axes: tuple[int, ...]
) -> ir.Value:
    """Return 1 / sqrt(mean(x^2) + epsilon) over ``dims`` and the ranks along ``axes``."""
    info, variance = make.local.info, make.mean(make.binary("Mul", x, x), dims, axes)
    epsilon = float(info.attribute("epsilon", SKIP_EPSILON if "Skip" in info.name else EPSILON))
    shifted = make.binary("Add", variance, make.scalar(epsilon, variance))
    return make.unary("Reciprocal", make.unary("Sqrt", shifted))
