"""Einsum: every letter of the equation is a factor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tensoropt.compiler.layout.rule import Filled, InnerStep, Rule
from tensoropt.compiler.sharding.ops.einsum_products import as_matmul, as_matrices
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.factors import FactorMap, adds_up, linear_in, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.dialects.build import element_type
from tensoropt.dialects.kernels import EINSUM_SINCE
from tensoropt.dialects.mlir import ir

__all__ = ["einsum", "parse_equation"]

_ELLIPSIS = "..."

_FLOATS = frozenset(("float16", "bfloat16", "float32", "float64"))
"""Element types of Gemm."""
_GEMM_ALONE = frozenset(("bfloat16",))
"""Element types that Einsum has since `EINSUM_SINCE`. On CPUs ONNX Runtime has only the Einsum."""
_GEMM_SINCE = 13


def parse_equation(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """Return the label of each dimension of each operand and of the result.

    A dimension covered by `...` is labelled by its distance from the last such dimension. Without
    `->` the result has these dimensions first, then the letters that appear once, in alphabetical
    order.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    operands, hidden = [], list[str]()
    for term, rank in zip(left.split(","), ranks, strict=True):
        before, dots, after = term.partition(_ELLIPSIS)
        count = rank - len(before) - len(after) if dots else 0
        covered = [f"{_ELLIPSIS}{i}" for i in reversed(range(count))]
        operands.append([*before, *covered, *after])
        # The dots of operands broadcast from the right, so the longest list has all labels.
        hidden = max(hidden, covered, key=len)
    if arrow:
        before, dots, after = right.partition(_ELLIPSIS)
        return operands, [*before, *(hidden if dots else ()), *after]
    counts = Counter(left.replace(_ELLIPSIS, "").replace(",", ""))
    return operands, [*hidden, *sorted(letter for letter, n in counts.items() if n == 1)]


@sharding_rule("Einsum")
def einsum(info: OpInfo) -> Rule | None:
    """Return a factor per letter, a sum if the result lacks the letter; decline diagonals."""
    operands, result = _terms(info)
    if any(len(set(labels)) < len(labels) for labels in operands):
        return None
    labels = dict.fromkeys(label for term in (result, *operands) for label in term)
    factors = [_loop(info, label, operands, result) for label in labels]
    linear = linear_in(info, *((index,) for index in range(len(operands))))
    kept = tuple(list(labels).index(label) for label in result)
    return rule_of(
        info,
        factors,
        linear=linear,
        localize=Filled(_localize),
        flops_per_point=float(len(operands)),
        inner=_widening(info, kept),
    )


def _widening(info: OpInfo, factors: tuple[int, ...]) -> tuple[InnerStep, ...]:
    """Return the cast of a product of narrow operands to a wide result along ``factors``.

    The narrow product is read and the wide one written, and both are in memory.
    """
    operand, result = info.operands[0], info.results[0]
    if operand is None or result is None or operand.item_bytes == result.item_bytes:
        return ()
    pass_bytes = (operand.item_bytes + result.item_bytes) // 2
    return (
        InnerStep((), factors, pass_bytes, "copy"),
        InnerStep((), factors, operand.item_bytes, "memory"),
    )


def _terms(info: OpInfo) -> tuple[list[list[str]], list[str]]:
    ranks = [operand.rank for operand in info.operands if operand is not None]
    return parse_equation(str(info.attribute("equation")), ranks)


def _localize(local: LocalOp) -> list[ir.Value]:
    """Return one matrix product if the operands can be read as matrices in place, else a copy.

    A product of bfloat16 may have a result in float32, which is cast.
    """
    terms, result = _terms(local.info)
    tensor, kind = local.info.operands[0], local.result_types[0]
    assert tensor is not None
    version, is_alone = local.info.standard_version, tensor.dtype in _GEMM_ALONE
    has_einsum = is_alone and version >= EINSUM_SINCE
    if tensor.dtype not in _FLOATS or version < _GEMM_SINCE or has_einsum:
        return local.clone()
    make = Arithmetic(local)
    product = as_matrices(make, local.operands, terms, result)
    wide = ir.RankedTensorType(kind).element_type
    if product is None and (is_alone or wide != element_type(local.operands[0])):
        product = as_matmul(make, local.operands, terms, result)
    return local.clone() if product is None else [make.cast(product, wide)]


def _loop(
    info: OpInfo, label: str, operands: Sequence[Sequence[str]], result: Sequence[str]
) -> FactorMap:
    """Return the factor of ``label``; a dimension of size 1 that is stretched is not on it."""
    places = {i: labels.index(label) for i, labels in enumerate(operands) if label in labels}
    sizes = {index: info.shape(index)[dim] for index, dim in places.items()}
    if label in result:
        stretched = {i: dim for i, dim in places.items() if sizes[i] != 1}
        return FactorMap(stretched, {0: result.index(label)}, padded=True)
    can_split = adds_up(info) and 1 not in sizes.values()
    return FactorMap(places, reduction="sum", can_split=can_split, padded=True)
