"""Sums of products over labelled dimensions, each built as the one op that splits along all loops.

Each dimension of an operand or of the result has a label, as in Einsum: labels that two operands
share and the result lacks are summed over. Gradients of products are sums of the same kind: the
gradient of an operand sums over the labels that the operand lacks.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence

from tensoropt.dialects.build import Build, element_type, int_attr, shape_of, tensor_type
from tensoropt.dialects.mlir import ir

__all__ = ["Labels", "contract", "einsum", "operand_gradient"]

Labels = Sequence[str]
"""A name per dimension; equal names are the same loop."""

_MATRIX = 2


def operand_gradient(
    make: Build,
    factors: Sequence[tuple[ir.Value, Labels]],
    own: Labels,
    shape: Sequence[int],
) -> ir.Value:
    """Return the gradient of an operand of ``shape``: a sum of products of ``factors``.

    The factors are the gradient of the result and the other operands. A dimension of size 1 that
    was stretched is summed over. A dimension that no factor has (it was summed over alone) is
    repeated.
    """
    if any(0 in shape_of(x) for x, _ in factors):  # an empty sum
        return make.expand(make.scalar(0.0, factors[0][0]), shape)
    sizes = _sizes(factors)
    common = [label for label, n in zip(own, shape, strict=True) if sizes.get(label) == n]
    x = contract(make, factors, common)
    missing = [dim for dim, label in enumerate(own) if label not in common]
    if not missing:
        return x
    x = make.unsqueeze(x, missing)
    return x if shape_of(x) == list(shape) else make.expand(x, shape)


def _sizes(factors: Sequence[tuple[ir.Value, Labels]]) -> Mapping[str, int]:
    """Return the length of each loop, ignoring stretched dimensions of size 1."""
    sizes: dict[str, int] = {}
    for value, labels in factors:
        for label, n in zip(labels, shape_of(value), strict=True):
            sizes[label] = max(sizes.get(label, 1), n or 1)
    return sizes


def contract(make: Build, factors: Sequence[tuple[ir.Value, Labels]], result: Labels) -> ir.Value:
    """Return the product of ``factors`` with dimensions ``result``, summed over all other labels.

    Two matrices are multiplied by Gemm, which reads either of them transposed; stacks of matrices
    by MatMul; everything else by Einsum, which splits along every label.
    """
    squeezed = [_squeeze_stretched(make, factor, factors) for factor in factors]
    if len(squeezed) == 1:
        [(x, labels)] = squeezed
        if set(labels) == set(result):
            return make.transpose(x, [list(labels).index(label) for label in result])
    if len(squeezed) == _MATRIX:
        return _product(make, squeezed[0], squeezed[1], list(result))
    return einsum(make, squeezed, result)


def _squeeze_stretched(
    make: Build, factor: tuple[ir.Value, Labels], factors: Sequence[tuple[ir.Value, Labels]]
) -> tuple[ir.Value, list[str]]:
    """Return a factor without the dimensions of size 1 that other factors stretch."""
    (x, labels), sizes = factor, _sizes(factors)
    shape = shape_of(x)
    ones = [d for d, label in enumerate(labels) if shape[d] == 1 and sizes[label] > 1]
    common = [label for d, label in enumerate(labels) if d not in ones]
    return (make.squeeze(x, ones) if ones else x), common


def _product(
    make: Build, a: tuple[ir.Value, Labels], b: tuple[ir.Value, Labels], result: list[str]
) -> ir.Value:
    if (b[1] and result and result[-1] in a[1] and result[-1] not in b[1]) or not a[1]:
        a, b = b, a
    if not b[1] and set(a[1]) == set(result):
        return make.mul(make.transpose(a[0], [list(a[1]).index(n) for n in result]), b[0])
    summed = [label for label in a[1] if label in b[1] and label not in result]
    if len(summed) == 1:
        shared = [label for label in a[1] if label in b[1] and label in result]
        places = _matrices(a, b, result, shared, summed[0])
        if places is not None and not shared:
            return _gemm(make, a, b, summed[0])
        if places is not None:
            # ONNX Runtime reads a transposed stack without a copy.
            left, right = (
                make.swapped(x) if flip else x for (x, _), flip in zip((a, b), places, strict=True)
            )
            return make.matmul(left, right)
    return einsum(make, [a, b], result)


def _matrices(
    a: tuple[ir.Value, Labels],
    b: tuple[ir.Value, Labels],
    result: list[str],
    shared: list[str],
    summed: str,
) -> tuple[bool, bool] | None:
    """Return whether each of two stacks of matrices is transposed, ``None`` if not stacks."""
    count, rows, columns = len(shared), list(a[1]), list(b[1])
    if not len(rows) == len(columns) == len(result) == count + _MATRIX:
        return None
    if not rows[:count] == columns[:count] == result[:count] == shared:
        return None
    if result[-2:] != [*(x for x in rows[count:] if x != summed),
                       *(x for x in columns[count:] if x != summed)]:  # fmt: skip
        return None
    return rows[-1] != summed, columns[-1] == summed


def _gemm(
    make: Build, a: tuple[ir.Value, Labels], b: tuple[ir.Value, Labels], summed: str
) -> ir.Value:
    left, right = a[1][0] == summed, b[1][-1] == summed
    rows, columns = shape_of(a[0])[int(left)], shape_of(b[0])[1 - int(right)]
    flips = {"transA": int_attr(int(left)), "transB": int_attr(int(right))}
    kind = tensor_type([rows, columns], element_type(a[0]))
    return make.onnx("Gemm", [a[0], b[0]], kind, **flips)


def einsum(make: Build, factors: Sequence[tuple[ir.Value, Labels]], result: Labels) -> ir.Value:
    """Return the Einsum of ``factors``, summed over all labels that ``result`` lacks.

    Sums over several loops are long, as in gradients of weights, over all tokens. A rank computes a
    product of bfloat16 in bfloat16, and such a result is in float32 until the parts of all ranks
    are added up.
    """
    sizes = _sizes(factors)
    letters = dict(zip(sizes, string.ascii_letters, strict=False))
    terms = ("".join(letters[label] for label in labels) for _, labels in factors)
    equation = f"{','.join(terms)}->{''.join(letters[label] for label in result)}"
    operands = [x for x, _ in factors]
    element = element_type(operands[0])
    is_long = len(sizes) - len(result) > 1 and isinstance(element, ir.BF16Type)
    kind = tensor_type([sizes[label] for label in result], ir.F32Type.get() if is_long else element)
    y = make.onnx("Einsum", operands, kind, equation=ir.StringAttr.get(equation))
    return make.cast(y, element)
