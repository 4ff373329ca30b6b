"""Lowering of an Einsum of two operands to a matrix product, without copies where possible.

Runtimes transpose the summed dimensions of an Einsum to the end; Gemm reads a matrix either way.
Rows, columns, and sums are merged within the part of one rank, so every split remains possible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.dialects.build import Build, element_type, int_attr, shape_of, tensor_type
from tensoropt.dialects.mlir import ir

__all__ = ["as_matmul", "as_matrices"]


@dataclass(frozen=True)
class _Groups:
    """The factors of a product, grouped by the tensors that contain them.

    A batch factor is in both operands and the result, a row or column factor in one operand and the
    result, and a summed factor in both operands only. Factors are in the order of the result,
    summed factors in the order of the first operand.
    """

    batch: list[str]
    rows: list[str]
    columns: list[str]
    summed: list[str]
    sizes: dict[str, int]

    def count(self, labels: Sequence[str]) -> int:
        return math.prod(self.sizes[label] for label in labels)


def as_matrices(make: Build, operands: Sequence[ir.Value], terms: Sequence[list[str]],
                result: list[str]) -> ir.Value | None:  # fmt: skip
    """Return the Einsum ``terms -> result`` as a Gemm or, with a leading batch, as a MatMul.

    Operands are reshaped, and matrices are transposed as the product reads them; nothing is copied.
    Return ``None`` if factors are interleaved or sizes stretch.
    """
    found = _groups(operands, terms, result)
    if found is None or not found.summed:
        return None
    count, parts = len(found.batch), [_drop_ones(found, labels) for labels in (*terms, result)]
    if any(part[:count] != found.batch for part in parts):
        return None
    (a, b), (left, right, made) = operands, (part[count:] for part in parts)
    rows, columns = found.rows, found.columns
    if made == columns + rows:
        a, b, left, right, rows, columns = b, a, right, left, columns, rows
    flips = _flip(left, rows, found.summed), _flip(right, found.summed, columns)
    if made != rows + columns or None in flips:
        return None
    sizes = [found.count(group) for group in (found.batch, rows, found.summed, columns)]
    product = _multiply(make, a, b, sizes, (bool(flips[0]), bool(flips[1])))
    return make.shaped(product, [found.sizes[label] for label in result])


def _multiply(
    make: Build, a: ir.Value, b: ir.Value, sizes: Sequence[int], flips: tuple[bool, bool]
) -> ir.Value:
    """Return the product of the matrices in ``a`` and ``b``, of ``sizes`` (batch, m, k, n)."""
    batch, m, k, n = sizes
    front = [] if batch == 1 else [batch]
    a = make.shaped(a, [*front, *((k, m) if flips[0] else (m, k))])
    b = make.shaped(b, [*front, *((n, k) if flips[1] else (k, n))])
    if front:
        left, right = (
            make.swapped(x) if flip else x for x, flip in zip((a, b), flips, strict=True)
        )
        return make.matmul(left, right)
    kept = {"transA": int_attr(flips[0]), "transB": int_attr(flips[1])}
    return make.onnx("Gemm", [a, b], tensor_type([m, n], element_type(a)), **kept)


def _drop_ones(found: _Groups, labels: Sequence[str]) -> list[str]:
    """Return the labels of the dimensions longer than 1; the other dimensions move freely."""
    return [label for label in labels if found.sizes[label] > 1]


def _flip(labels: list[str], first: list[str], second: list[str]) -> bool | None:
    """Return whether an operand has ``second`` before ``first``; ``None`` if interleaved."""
    if labels == first + second:
        return False
    return True if labels == second + first else None


def as_matmul(make: Build, operands: Sequence[ir.Value], terms: Sequence[list[str]],
              result: list[str]) -> ir.Value | None:  # fmt: skip
    """Return the Einsum ``terms -> result`` as transposes and one MatMul.

    Return ``None`` if it is no product. For element types that Einsum does not support.
    """
    found = _groups(operands, terms, result)
    if found is None:
        return None
    orders = found.batch + found.rows + found.summed, found.batch + found.summed + found.columns
    sides = []
    for x, labels, order in zip(operands, terms, orders, strict=True):
        long = _drop_ones(found, labels)
        operand = make.shaped(x, [found.sizes[label] for label in long])
        sides.append(make.transpose(operand, [long.index(label) for label in order]))
    b, m, n, k = map(found.count, (found.batch, found.rows, found.columns, found.summed))
    product = make.matmul(make.shaped(sides[0], [b, m, k]), make.shaped(sides[1], [b, k, n]))
    order, made = found.batch + found.rows + found.columns, _drop_ones(found, result)
    product = make.shaped(product, [found.sizes[label] for label in order])
    product = make.transpose(product, [order.index(label) for label in made])
    return make.shaped(product, [found.sizes[label] for label in result])


def _groups(
    operands: Sequence[ir.Value], terms: Sequence[list[str]], result: list[str]
) -> _Groups | None:
    """Return the factors longer than 1 by group, ``None`` if this is no product of two operands."""
    sizes = _sizes(operands, terms)
    if sizes is None:
        return None
    left, right = ({label for label in term if sizes[label] > 1} for term in terms)
    if (left ^ right) - set(result):
        return None  # a sum over a factor of a single operand
    both, long = left & right, [label for label in result if sizes[label] > 1]
    return _Groups(
        batch=[label for label in long if label in both],
        rows=[label for label in long if label in left - right],
        columns=[label for label in long if label in right - left],
        summed=[label for label in terms[0] if label in both - set(result)],
        sizes=sizes,
    )


def _sizes(operands: Sequence[ir.Value], terms: Sequence[list[str]]) -> dict[str, int] | None:
    """Return the size of each factor; ``None`` if a size is symbolic, 0, or stretched from 1."""
    sizes: dict[str, int] = {}
    for x, labels in zip(operands, terms, strict=True):
        for label, size in zip(labels, shape_of(x), strict=True):
            if not size or sizes.setdefault(label, size) != size:
                return None
    return sizes if len(terms) == 2 else None
