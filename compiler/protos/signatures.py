"""What a node does to its operands as they are: to tell whether it still does, after passes."""

from __future__ import annotations

from typing import NamedTuple

import onnx

from tensoropt.compiler.layout.layout import Layout, split
from tensoropt.dialects import onnx as onnx_ops
from tensoropt.dialects.mlir import ir

__all__ = ["Signature", "signature", "signature_of", "swapped", "turned"]

_TURNS = ("transA", "transB")
"""What says that a product reads a matrix transposed; a pass may change it."""
_PRODUCTS = ("MatMul", "Gemm", "com.microsoft.FusedMatMul", "com.microsoft.TransposeMatMul")


class Signature(NamedTuple):
    """The operator, one name for all products of matrices, and which operands it transposes."""

    operator: str
    turns: tuple[bool, ...] = ()


def signature(node: onnx.NodeProto) -> Signature:
    """Return what a node of a model does."""
    turns = {a.name for a in node.attribute if a.name in _TURNS and a.i}
    domain = "" if node.domain == "ai.onnx" else node.domain
    return _signature(domain, node.op_type, turns)


def signature_of(op: ir.Operation) -> Signature:
    """Return what an operation does."""
    turns = {turn for turn in _TURNS if onnx_ops.attribute(op, turn, 0)}
    return _signature(*onnx_ops.split_name(op.name), turns)


def _signature(domain: str, name: str, turns: set[str]) -> Signature:
    operator = f"{domain}.{name}" if domain else name
    if operator in _PRODUCTS:
        return Signature("MatMul", tuple(turn in turns for turn in _TURNS))
    return Signature(operator)


def turned(one: Signature, other: Signature, operand: int) -> bool | None:
    """Say whether an operand of the one is that of the other transposed; ``None``: no telling."""
    if one.operator != other.operator:
        return None
    if operand >= len(one.turns):
        return False
    return one.turns[operand] != other.turns[operand]


def swapped(layout: Layout, rank: int) -> Layout:
    """Return the layout of a tensor of ``rank`` with its last two dimensions exchanged."""
    dims = {rank - 2: rank - 1, rank - 1: rank - 2}
    placements = (
        split(dims.get(own.dim, own.dim)) if own.is_split else own for own in layout.placements
    )
    return Layout(tuple(placements), layout.turned)
