"""Gradients of matrix products: MatMul, Gemm, Einsum and the runtime's fused forms."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.sharding.ops.einsum import parse_equation
from tensoropt.compiler.training.gradients.products import Labels, operand_gradient
from tensoropt.compiler.training.gradients.registry import (
    Backward,
    ForwardOp,
    Gradients,
    decomposition,
    gradient,
)
from tensoropt.dialects.mlir import ir

__all__: list[str] = []

_ROW, _COLUMN, _SUM = "m", "n", "k"


@gradient("MatMul", "com.microsoft.FusedMatMul", "com.microsoft.TransposeMatMul")
def matmul(b: Backward) -> Gradients:
    """dA = dY B^T and dB = A^T dY, each one product, which sums over the batch too if required."""
    if b.info.attribute("transBatchA", 0) or b.info.attribute("transBatchB", 0):
        raise b.unsupported("its batch follows the rows, expected transBatchA and transBatchB of 0")
    batch = max(len(b.shape(0)), len(b.shape(1))) - 2
    sides = _matrix_labels(b, 0, batch, _ROW), _matrix_labels(b, 1, batch, _COLUMN)
    result = [label for label in _batch(batch, batch) if batch > 0]
    result += [label for side, label in zip(sides, (_ROW, _COLUMN), strict=True) if label in side]
    alpha = float(b.info.attribute("alpha", 1.0))
    dy = b.dy if alpha == 1.0 else b.make.scaled(b.dy, alpha)
    return _operand_gradients(b, dy, sides, result)


def _matrix_labels(b: Backward, index: int, batch: int, own: str) -> list[str]:
    """Return the labels of operand ``index``; a vector lacks the ``own`` dimension."""
    rank = len(b.shape(index))
    if rank == 1:
        return [_SUM]
    matrix = [own, _SUM] if index == 0 else [_SUM, own]
    flip = b.info.attribute("transA" if index == 0 else "transB", 0)
    return [*_batch(batch, rank - 2), *(reversed(matrix) if flip else matrix)]


def _batch(whole: int, own: int) -> list[str]:
    """Return the labels of the last ``own`` of ``whole`` batch dimensions."""
    return [f"batch{dim}" for dim in range(max(whole, 0) - own, max(whole, 0))] if own > 0 else []


def _operand_gradients(
    b: Backward, dy: ir.Value, sides: Sequence[Labels], result: Labels
) -> list[ir.Value | None]:
    """Return the gradient of each operand of a product from the gradient of its result."""
    return [
        operand_gradient(
            b.make,
            [(dy, result), *((b.operand(o), sides[o]) for o in range(len(sides)) if o != index)],
            sides[index],
            b.shape(index),
        )
        if b.wanted[index]
        else None
        for index in range(len(sides))
    ]


@gradient("Gemm")
def gemm(b: Backward) -> Gradients:
    """Return alpha times the gradients of the product, and beta dY for the added operand."""
    alpha, beta = (float(b.info.attribute(name, 1.0)) for name in ("alpha", "beta"))
    sides = _matrix_labels(b, 0, 0, _ROW), _matrix_labels(b, 1, 0, _COLUMN)
    dy = b.dy if alpha == 1.0 or not any(b.wanted[:2]) else b.make.scaled(b.dy, alpha)
    found = _operand_gradients(b, dy, sides, [_ROW, _COLUMN])
    if not b.has(2) or not b.wanted[2]:
        return b.first(*found)
    added = b.unbroadcast(b.dy, 2)
    return [*found, added if beta == 1.0 else b.make.scaled(added, beta)]


@decomposition("com.microsoft.FusedGemm")
def fused_gemm(f: ForwardOp) -> Sequence[ir.Value | None]:
    """Return Gemm, followed by the activation as a separate operator."""
    attributes = {name: f.op.attributes[name] for name in ("alpha", "beta", "transA", "transB")
            if name in f.op.attributes}  # fmt: skip
    options = {
        option: f.op.attributes[f"activation_{option}"]
        for option in ("alpha", "beta", "gamma")
        if f"activation_{option}" in f.op.attributes
    }
    product = f.make.onnx("Gemm", f.operands, f.op.results[0].type, **attributes)
    name = str(f.info.attribute("activation", ""))
    return [f.make.unary(name, product, **options) if name else product]


@gradient("Einsum")
def einsum(b: Backward) -> Gradients:
    """Return for each operand the Einsum of dY with all other operands."""
    equation = str(b.info.attribute("equation"))
    ranks = [len(b.shape(index)) for index in range(len(b.operands))]
    sides, result = parse_equation(equation, ranks)
    if any(len(set(labels)) < len(labels) for labels in sides):
        raise b.unsupported(
            f"'{equation}' takes a diagonal, expected no letter twice in one operand"
        )
    return _operand_gradients(b, b.dy, sides, result)
