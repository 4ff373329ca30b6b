"""An Einsum of two operands as the matrix product that it is, without a copy where that can be.

Runtimes transpose what an Einsum sums over to the end; Gemm reads a matrix either way. What is
merged into rows, columns and sums is a rank's own part, so that all splits are possible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tensoropt.compiler.sharding.arithmetic import Arithmetic
from tensoropt.dialects.build import element_type, int_attr, shape_of, tensor_type

__all__ = ["as_gemm", "as_matmul"]


@dataclass(frozen=True)
class _Groups:
    """The loops of a product by where they are: in both operands and the result, in one operand
    and the result, in both operands alone. In the order of the result, or of the first operand."""

    batch: list[str]
    rows: list[str]
    columns: list[str]
    summed: list[str]
    sizes: dict[str, int]

    def count(self, labels: Sequence[str]) -> int:
        return math.prod(self.sizes[label] for label in labels)


def as_gemm(make: Arithmetic, operands: Sequence[Any], terms: Sequence[list[str]],
            result: list[str]) -> Any:  # fmt: skip
    """Return the Einsum ``terms -> result`` by one Gemm of reshaped operands, without a transpose.

    ``None`` where that cannot be: a batch, rows and columns that are mixed, sizes that stretch.
    """
    found = _groups(operands, terms, result)
    if found is None or found.batch or not found.summed:
        return None
    (a, left), (b, right) = ((x, _long(found, t)) for x, t in zip(operands, terms, strict=True))
    made, rows, columns = _long(found, result), found.rows, found.columns
    if made == columns + rows:
        (a, left), (b, right), rows, columns = (b, right), (a, left), columns, rows
    flips = _flip(left, rows, found.summed), _flip(right, found.summed, columns)
    if made != rows + columns or None in flips:
        return None
    m, k, n = found.count(rows), found.count(found.summed), found.count(columns)
    shapes = [k, m] if flips[0] else [m, k], [n, k] if flips[1] else [k, n]
    kept = {"transA": int_attr(bool(flips[0])), "transB": int_attr(bool(flips[1]))}
    kind = tensor_type([m, n], element_type(a))
    matrices = [_shaped(make, x, shape) for x, shape in zip((a, b), shapes, strict=True)]
    product = make.onnx("Gemm", matrices, kind, **kept)
    return _shaped(make, product, [found.sizes[label] for label in result])


def _long(found: _Groups, labels: Sequence[str]) -> list[str]:
    """Return the labels of the dimensions that are longer than 1: the others move freely."""
    return [label for label in labels if found.sizes[label] > 1]


def _flip(labels: list[str], first: list[str], second: list[str]) -> bool | None:
    """Say whether an operand has ``second`` in front of ``first``; ``None`` if they are mixed."""
    if labels == first + second:
        return False
    return True if labels == second + first else None


def as_matmul(make: Arithmetic, operands: Sequence[Any], terms: Sequence[list[str]],
              result: list[str]) -> Any:  # fmt: skip
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
        held = _shaped(make, x, [found.sizes[label] for label in long])
        sides.append(make.transpose(held, [long.index(label) for label in order]))
    b, m, n, k = map(found.count, (found.batch, found.rows, found.columns, found.summed))
    product = make.matmul(_shaped(make, sides[0], [b, m, k]), _shaped(make, sides[1], [b, k, n]))
    order, made = found.batch + found.rows + found.columns, _long(found, result)
    product = _shaped(make, product, [found.sizes[label] for label in order])
    product = make.transpose(product, [order.index(label) for label in made])
    return _shaped(make, product, [found.sizes[label] for label in result])


def _groups(
    operands: Sequence[Any], terms: Sequence[list[str]], result: list[str]
) -> _Groups | None:
    """Return the loops that are longer than 1, ``None`` for what is no product of two."""
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


def _sizes(operands: Sequence[Any], terms: Sequence[list[str]]) -> dict[str, int] | None:
    """Return the size of each loop; ``None`` if one is symbolic, or a 1 that is stretched."""
    sizes: dict[str, int] = {}
    for x, labels in zip(operands, terms, strict=True):
        for label, size in zip(labels, shape_of(x), strict=True):
            if size is None or sizes.setdefault(label, size) != size:
                return None
    return sizes if len(terms) == 2 else None


def _shaped(make: Arithmetic, x: Any, shape: Sequence[int]) -> Any:
    return x if shape_of(x) == list(shape) else make.reshape(x, shape)
