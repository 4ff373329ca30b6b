"""Mixed precision: which forward ops compute in float16 or bfloat16, and the casts between.

After torch.autocast: products run narrow, what needs range or adds up many terms in float32, and
every other op in the widest type of what it reads that was computed; in bfloat16 only what ONNX
Runtime has a kernel for. Weights and literals have no say in that; they are cast to what their
reader computes in, once per type. Parameters, moments and gradients stay in float32, as the
gradient of a Cast is a Cast.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache

from tensoropt.compiler.training.kernels import computes_in
from tensoropt.compiler.training.marks import Marker
from tensoropt.dialects import onnx
from tensoropt.dialects.build import element_type, shape_of, tensor_type
from tensoropt.dialects.elements import Array
from tensoropt.dialects.mlir import ir

__all__ = ["NARROW", "WIDE", "compute_in"]

_NARROW = """
    MatMul Gemm Einsum Conv ConvTranspose DeformConv Attention LSTM GRU RNN
    com.microsoft.FusedMatMul com.microsoft.MultiHeadAttention com.microsoft.Attention
    com.microsoft.GroupQueryAttention
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
WIDE = frozenset(_WIDE.split())
"""Ops that run in float32: exponentials, statistics, sums; as well as those without a schema."""


def compute_in(
    block: ir.Block, weights: Collection[ir.Value], marker: Marker, opset: int, precision: str
) -> None:
    """Let the float32 ops of ``block`` compute in ``precision``, float16 or bfloat16.

    Values of other types, float64 among them, stay as they are. Linear in the operands.
    """
    narrow = {"float16": ir.F16Type.get, "bfloat16": ir.BF16Type.get}[precision]()
    walk = _Walk(weights, marker, opset, narrow)
    for op in list(block):
        walk.visit(op.operation)


class _Walk:
    """``weak`` are the values whose type does not decide; ``casts`` those of each value."""

    def __init__(
        self, weights: Collection[ir.Value], marker: Marker, opset: int, narrow: ir.Type
    ) -> None:
        self.marker, self.opset, self.narrow = marker, opset, narrow
        self.wide = ir.F32Type.get()
        self.weak: set[ir.Value] = set(weights)
        self.casts: dict[tuple[ir.Value, ir.Type], ir.Value] = {}

    def visit(self, op: ir.Operation) -> None:
        """Choose the type that ``op`` computes in, and give it its operands in that type."""
        if op.name in (onnx.CONSTANT, onnx.NO_VALUE):
            self.weak.update(op.results)
            return
        operands, results = self._typed(op)
        values = [op.operands[i] for i in operands]
        is_weak = all(value in self.weak for value in onnx.read_values(op))
        target = self._target(op, [value for value in values if value not in self.weak])
        if is_weak and op.name.removeprefix("onnx.") not in NARROW:
            target = self.wide
            self.weak.update(op.results)
        with ir.InsertionPoint(op):
            self._inside(op)
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
        if len(op.regions) or not self._typed(op)[0]:
            return False
        text = _TEXT[str(self.narrow)]
        if text == "bfloat16" and not computes_in(op.name.removeprefix("onnx."), self.opset, text):
            return False
        return bool(domain) or f"tensor({text})" in _allowed(name, self.opset)

    def _typed(self, op: ir.Operation) -> tuple[list[int], list[int]]:
        """Return which operands and results have the element type that the op computes in."""
        domain, name = onnx.split_name(op.name)
        counts = len(op.operands), len(op.results)
        if not domain:
            operands, results = _places(name, self.opset, *counts)
        else:
            known = f"{domain}.{name}" in NARROW
            operands, results = (list(range(count if known else 0)) for count in counts)
        return (
            [i for i in operands if self._is_ours(op.operands[i])],
            [i for i in results if self._is_ours(op.results[i])],
        )

    def _is_ours(self, value: ir.Value) -> bool:
        if not isinstance(value.type, ir.RankedTensorType):
            return False
        return element_type(value) in (self.wide, self.narrow)

    def _inside(self, op: ir.Operation) -> None:
        """Give what regions of ``op`` read from outside in float32."""
        for inner in onnx.walk(op):
            for i in range(len(inner.operands)):
                inner.operands[i] = self._as(inner.operands[i], self.wide)

    def _as(self, value: ir.Value, element: ir.Type) -> ir.Value:
        """Return ``value`` in a type, where it is a float32 or narrow one of another."""
        if not self._is_ours(value) or element_type(value) == element:
            return value
        if (value, element) not in self.casts:
            self.casts[value, element] = self._cast(value, element)
        return self.casts[value, element]

    def _cast(self, value: ir.Value, element: ir.Type) -> ir.Value:
        owner = onnx.owner(value)
        name = (None if owner is None else onnx.node_name(owner)) or "cast"
        make = self.marker.at(f"{name}.{_TEXT[str(element)]}", self.opset, "forward")
        literal = onnx.constant_value(value)
        if literal is None:
            return make.cast(value, element)
        return make.constant(_narrowed(literal, element))


_TEXT = {"f32": "float", "f16": "float16", "bf16": "bfloat16"}


def _narrowed(literal: Array, element: ir.Type) -> Array:
    """Return a literal in another type; large numbers, as masks have, stay finite."""
    import ml_dtypes
    import numpy as np

    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}[str(element)]
    most = float(ml_dtypes.finfo(dtype).max)
    finite = np.where(np.isfinite(literal), np.clip(literal, -most, most), literal)
    return finite.astype(dtype)


@cache
def _places(name: str, opset: int, operands: int, results: int) -> tuple[list[int], list[int]]:
    """Return the operands and results of the type that the first result has in the schema."""
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
def _allowed(name: str, opset: int) -> frozenset[str]:
    """Return the types that the first result may have."""
    import onnx.defs

    schema = onnx.defs.get_schema(name, opset)
    kind = schema.outputs[0].type_str
    found = [one.allowed_type_strs for one in schema.type_constraints if one.type_param_str == kind]
    return frozenset(text for texts in found for text in texts)
