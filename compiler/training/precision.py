"""Mixed precision: the forward ops that compute in float16 or bfloat16, and the casts between.

As in torch.autocast, products run narrow and ops that need range or sum many terms run in float32.
Every other op runs in the widest type among its computed operands; in bfloat16 only if ONNX Runtime
has a kernel. Weights and literals do not affect the choice: they are cast to the type of their
reader, once per type. Parameters, moments and gradients stay in float32, since the gradient of a
Cast is a Cast.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache

from tensoropt.compiler.training.marks import Marker
from tensoropt.dialects import onnx
from tensoropt.dialects.build import element_type, shape_of, tensor_type
from tensoropt.dialects.elements import Array
from tensoropt.dialects.kernels import computes_in
from tensoropt.dialects.mlir import ir

__all__ = ["NARROW", "WIDE", "compute_in"]

_NARROW = """
    MatMul Gemm Einsum Conv ConvTranspose DeformConv Attention LSTM GRU RNN
    com.microsoft.FusedMatMul com.microsoft.MultiHeadAttention com.microsoft.Attention
    com.microsoft.GroupQueryAttention tensoropt.Attention tensoropt.BlockedAttention
"""
NARROW = frozenset(_NARROW.split())
"""Ops that always run narrow."""

_WIDE = """
    Acos Asin Cosh CumProd CumSum Erf Exp GroupNormalization InstanceNormalization L2Normalization
    LayerNormalization BatchNormalization Log LogSoftmax LpNormalization LpPool LRN
    MeanVarianceNormalization NegativeLogLikelihoodLoss Pow RMSNormalization Reciprocal ReduceL1
    ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd ReduceSum ReduceSumSquare Resize
    Sinh Softmax SoftmaxCrossEntropyLoss Softplus Sqrt Tan
"""
_WITH_SUMS = frozenset(f"onnx.{name}" for name in (onnx.ATTENTION, onnx.BLOCKED_ATTENTION))
WIDE = frozenset(_WIDE.split())
"""Ops that run in float32: exponentials, statistics and sums. Ops without a schema do too."""


def compute_in(
    block: ir.Block, weights: Collection[ir.Value], marker: Marker, opset: int, precision: str
) -> None:
    """Make the float32 ops of ``block`` compute in ``precision``, float16 or bfloat16.

    Values of other types, including float64, are left unchanged. Linear in the operands.
    """
    narrow = {"float16": ir.F16Type.get, "bfloat16": ir.BF16Type.get}[precision]()
    walk = _Walk(weights, marker, opset, narrow)
    for op in list(block):
        walk.visit(op.operation)


class _Walk:
    """The rewrite of one block.

    The types of ``weak`` values do not affect the choice for their readers. ``casts`` memoizes the
    casts by value and type.
    """

    def __init__(
        self, weights: Collection[ir.Value], marker: Marker, opset: int, narrow: ir.Type
    ) -> None:
        self.marker, self.opset, self.narrow = marker, opset, narrow
        self.wide = ir.F32Type.get()
        self.weak: set[ir.Value] = set(weights)
        self.casts: dict[tuple[ir.Value, ir.Type], ir.Value] = {}

    def visit(self, op: ir.Operation) -> None:
        """Choose the type that ``op`` computes in, and cast its operands to that type."""
        if op.name in (onnx.CONSTANT, onnx.NO_VALUE):
            self.weak.update(op.results)
            return
        operands, results = self._typed_indices(op)
        values = [op.operands[i] for i in operands]
        is_weak = all(value in self.weak for value in onnx.read_values(op))
        target = self._target(op, [value for value in values if value not in self.weak])
        if is_weak and op.name.removeprefix("onnx.") not in NARROW:
            target = self.wide
            self.weak.update(op.results)
        with ir.InsertionPoint(op):
            for inner in onnx.walk(op):  # the ops of regions stay in float32
                for i in range(len(inner.operands)):
                    inner.operands[i] = self._as(inner.operands[i], self.wide)
            for i in range(len(op.operands)):
                op.operands[i] = self._as(op.operands[i], target if i in operands else self.wide)
        for value in (op.results[i] for i in results if values):
            value.set_type(tensor_type(shape_of(value), target))

    def _target(self, op: ir.Operation, strong: Iterable[ir.Value]) -> ir.Type:
        name = op.name.removeprefix("onnx.")
        found = {element_type(value) for value in strong}
        if name in WIDE or not self._can_be_narrow(op):
            return self.wide
        if name in NARROW:
            return self.narrow
        return self.narrow if self.narrow in found and self.wide not in found else self.wide

    def _can_be_narrow(self, op: ir.Operation) -> bool:
        domain, name = onnx.split_name(op.name)
        if len(op.regions) or not self._typed_indices(op)[0]:
            return False
        text = _TEXT[str(self.narrow)]
        if text == "bfloat16" and not computes_in(op.name.removeprefix("onnx."), self.opset, text):
            return False
        return bool(domain) or f"tensor({text})" in _allowed_types(name, self.opset)

    def _typed_indices(self, op: ir.Operation) -> tuple[list[int], list[int]]:
        """Return the indices of operands and results with the type that the op computes in."""
        domain, name = onnx.split_name(op.name)
        counts = len(op.operands), len(op.results)
        if not domain:
            operands, results = _same_type_indices(name, self.opset, *counts)
        else:
            known = f"{domain}.{name}" in NARROW
            operands, results = (list(range(count if known else 0)) for count in counts)
            if op.name in _WITH_SUMS:  # the sums of exponentials are always wide
                results = results[:1]
        return (
            [i for i in operands if self._is_ours(op.operands[i])],
            [i for i in results if self._is_ours(op.results[i])],
        )

    def _is_ours(self, value: ir.Value) -> bool:
        if not isinstance(value.type, ir.RankedTensorType):
            return False
        return element_type(value) in (self.wide, self.narrow)

    def _as(self, value: ir.Value, element: ir.Type) -> ir.Value:
        """Return ``value`` as ``element`` if it is a float32 or narrow value of the other type."""
        if not self._is_ours(value) or element_type(value) == element:
            return value
        if (value, element) not in self.casts:
            owner = onnx.owner(value)
            name = (None if owner is None else onnx.node_name(owner)) or "cast"
            make = self.marker.builder(f"{name}.{_TEXT[str(element)]}", self.opset, "forward")
            literal = onnx.constant_value(value)
            self.casts[value, element] = (
                make.cast(value, element)
                if literal is None
                else make.constant(_narrow(literal, element))
            )
        return self.casts[value, element]


_TEXT = {"f32": "float", "f16": "float16", "bf16": "bfloat16"}


def _narrow(literal: Array, element: ir.Type) -> Array:
    """Return a literal in another type; large finite numbers, as in masks, stay finite."""
    import ml_dtypes
    import numpy as np

    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}[str(element)]
    most = float(ml_dtypes.finfo(dtype).max)
    finite = np.where(np.isfinite(literal), np.clip(literal, -most, most), literal)
    return finite.astype(dtype)


@cache
def _same_type_indices(
    name: str, opset: int, operands: int, results: int
) -> tuple[list[int], list[int]]:
    """Return the operands and results that share the type parameter of the first result."""
    import onnx.defs

    schema = onnx.defs.get_schema(name, opset)
    kind = schema.outputs[0].type_str
    inputs = [schema.inputs[min(i, len(schema.inputs) - 1)].type_str for i in range(operands)]
    outputs = [schema.outputs[min(i, len(schema.outputs) - 1)].type_str for i in range(results)]
    return (
        [i for i, text in enumerate(inputs) if text == kind],
        [i for i, text in enumerate(outputs) if text == kind],
    )


@cache
def _allowed_types(name: str, opset: int) -> frozenset[str]:
    """Return the types that the first result may have."""
    import onnx.defs

    schema = onnx.defs.get_schema(name, opset)
    kind = schema.outputs[0].type_str
    constraints = [c for c in schema.type_constraints if c.type_param_str == kind]
    return frozenset(text for c in constraints for text in c.allowed_type_strs)
