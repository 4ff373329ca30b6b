"""What a node does to its operands as they are, in one word: to tell whether it still does."""

from __future__ import annotations

import onnx

from tensoropt.dialects import onnx as onnx_ops
from tensoropt.dialects.mlir import ir

__all__ = ["signature", "signature_of"]

_TURNS = ("transA", "transB")
"""The attributes that a pass may change when it reads a weight as it lies."""


def signature(node: onnx.NodeProto) -> str:
    """Return the operator of a node, with what says that it reads an operand transposed."""
    turned = {a.name for a in node.attribute if a.name in _TURNS and a.i}
    return _text("" if node.domain == "ai.onnx" else node.domain, node.op_type, turned)


def signature_of(op: ir.Operation) -> str:
    """Return the same of an operation."""
    turned = {turn for turn in _TURNS if onnx_ops.attribute(op, turn, 0)}
    return _text(*onnx_ops.split_name(op.name), turned)


def _text(domain: str, name: str, turned: set[str]) -> str:
    return " ".join([f"{domain}.{name}" if domain else name, *sorted(turned)])
