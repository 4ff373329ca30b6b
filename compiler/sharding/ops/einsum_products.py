"""An Einsum of two operands as the matrix product that it is, without a copy where that can be.

Runtimes transpose what an Einsum sums over to the end; Gemm reads a matrix either way. What is
merged into rows, columns and sums is a rank's own part, so that all splits are possible.
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
    """The factors of a product by where they are: in both operands and the result, in one operand
    and the result, in both operands alone. In the order of the result, or of the first operand."""

    batch: list[str]
    rows: list[str]
    columns: list[str]
    summed: list[str]
    sizes: dict[str, int]

    def count(self, labels: Sequence[str]) -> int:
        return math.prod(self.sizes[label] for label in labels)


def as_matrices(make: Build, operands: Sequence[ir.Value], terms: Sequence[list[str]],
                result: list[str]) -> ir.Value | None:  # fmt: skip
    """Return the Einsum ``terms -> result`` by Gemm or, with a batch in front, by MatMul.

    Operands are reshaped and matrices turned, which both products do as they read; nothing is
    copied. ``None`` where that cannot be: factors that are mixed, sizes that stretch.
    """
    found = _groups(operands, terms, result)
    if found is None or not found.summed:
        return None
    count, parts = len(found.batch), [_long(found, labels) for labels in (*terms, result)]
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
    product = _multiplied(make, a, b, sizes, (bool(flips[0]), bool(flips[1])))
    return make.shaped(product, [found.sizes[label] for label in result])


def _multiplied(
    make: Build, a: ir.Value, b: ir.Value, sizes: Sequence[int], flips: tuple[bool, bool]
) -> ir.Value:
    """Return the product of ``a`` and ``b``, which hold matrices of ``sizes`` (batch, m, k, n)."""
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


def _long(found: _Groups, labels: Sequence[str]) -> list[str]:
    """Return the labels of the dimensions that are longer than 1: the others move freely."""
    return [label for label in labels if found.sizes[label] > 1]


def _flip(labels: list[str], first: list[str], second: list[str]) -> bool | None:
    """Say whether an operand has ``second`` in front of ``first``; ``None`` if they are mixed."""
    if labels == first + second:
        return False
    return True if labels == second + first else None


def as_matmul(make: Build, operands: Sequence[ir.Value], terms: Sequence[list[str]],
              result: list[str]) -> ir.Value | None:  # fmt: skip
    """Return the Einsum ``terms -> result`` by transposes and one MatMul; ``None`` if it is none.

    For element types that Einsum does not take.
    """
    found = _groups(operands, terms, result)
    if found is None:
        return None
    orders = found.batch + found.rows + found.summed, found.batch + found.summed + found.columns
    sides = []
    for x, labels, order in zip(operands, terms, orders, strict=True):
        long = _long(found, labels)
        operand = make.shaped(x, [found.sizes[label] for label in long])
        sides.append(make.transpose(operand, [long.index(label) for label in order]))
    b, m, n, k = map(found.count, (found.batch, found.rows, found.columns, found.summed))
    product = make.matmul(make.shaped(sides[0], [b, m, k]), make.shaped(sides[1], [b, k, n]))
    order, made = found.batch + found.rows + found.columns, _long(found, result)
    product = make.shaped(product, [found.sizes[label] for label in order])
    product = make.transpose(product, [order.index(label) for label in made])
    return make.shaped(product, [found.sizes[label] for label in result])


def _groups(
    operands: Sequence[ir.Value], terms: Sequence[list[str]], result: list[str]
) -> _Groups | None:
    """Return the factors that are longer than 1, ``None`` for what is no product of two."""
    sizes = _sizes(operands, terms)
    if sizes is None:
        return None
    left, right = ({label for label in term if sizes[label] > 1} for term in terms)
    if (left ^ right) - set(result):
        return None  # a sum of one operand alone
    both, long = left & right, [label for label in result if sizes[label] > 1]
    return _Groups(
        batch=[label for label in long if label in both],
        rows=[label for label in long if label in left - right],
        columns=[label for label in long if label in right - left],
        summed=[label for label in terms[0] if label in both - set(result)],
        sizes=sizes,
    )


def _sizes(operands: Sequence[ir.Value], terms: Sequence[list[str]]) -> dict[str, int] | None:
    """Return the size of each factor; ``None`` if one is symbolic, or nothing, or a 1 that is
    stretched."""
    sizes: dict[str, int] = {}
    for x, labels in zip(operands, terms, strict=True):
        for label, size in zip(labels, shape_of(x), strict=True):
            if not size or sizes.setdefault(label, size) != size:
                return None
    return sizes if len(terms) == 2 else None
