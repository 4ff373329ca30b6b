"""Signatures of nodes, to check whether a node still computes the same function after passes."""

from __future__ import annotations

from typing import NamedTuple

import onnx

from tensoropt.dialects import onnx as onnx_ops
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.layout import Layout, split

__all__ = ["Signature", "is_transposed", "signature", "signature_of", "swap_last_dims"]

_TRANSPOSES = ("transA", "transB")
"""Attributes for reading a matrix transposed; passes may change them."""
_PRODUCTS = ("MatMul", "Gemm", "com.microsoft.FusedMatMul", "com.microsoft.TransposeMatMul")


class Signature(NamedTuple):
    """The operator, with one name for all matrix products, and the operands that it transposes."""

    operator: str
    transposes: tuple[bool, ...] = ()


def signature(node: onnx.NodeProto) -> Signature:
    """Return the signature of a node of a model."""
    transposes = {a.name for a in node.attribute if a.name in _TRANSPOSES and a.i}
    domain = "" if node.domain == "ai.onnx" else node.domain
    return _signature(domain, node.op_type, transposes)


def signature_of(op: ir.Operation) -> Signature:
    """Return the signature of an operation."""
    transposes = {attribute for attribute in _TRANSPOSES if onnx_ops.attribute(op, attribute, 0)}
    return _signature(*onnx_ops.split_name(op.name), transposes)


def _signature(domain: str, name: str, transposes: set[str]) -> Signature:
    operator = f"{domain}.{name}" if domain else name
    if operator in _PRODUCTS:
        return Signature("MatMul", tuple(attribute in transposes for attribute in _TRANSPOSES))
    return Signature(operator)


def is_transposed(a: Signature, b: Signature, operand: int) -> bool | None:
    """Return whether ``a`` and ``b`` read an operand transposed to each other.

    ``None`` if their operators differ.
    """
    if a.operator != b.operator:
        return None
    if operand >= len(a.transposes):
        return False
    return a.transposes[operand] != b.transposes[operand]


def swap_last_dims(layout: Layout, rank: int) -> Layout:
    """Return the layout of a tensor of ``rank`` with its last two dimensions swapped."""
    dims = {rank - 2: rank - 1, rank - 1: rank - 2}
    placements = (
        split(dims.get(own.dim, own.dim)) if own.is_split else own for own in layout.placements
    )
    return Layout(tuple(placements), layout.turned)
