"""`unmerge-rows`: multiply batches of samples instead of one matrix of merged rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.layout.sizes import is_power_of_two
from tensoropt.compiler.protos.op_names import OpNamer
from tensoropt.compiler.protos.types import static_shape
from tensoropt.compiler.shapes.reshapes import shape_literal
from tensoropt.dialects.build import element_type, tensor_type
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import attribute, function, is_no_value, made_by, opsets, walk
from tensoropt.passes.base import Pass
from tensoropt.passes.numbering import forget_removed

__all__ = ["UnmergeRowsPass"]

_BROADCASTS = 7
"""First opset in which Add broadcasts, and Gemm broadcasts without an attribute."""


@dataclass(frozen=True)
class UnmergeRowsPass(Pass):
    """Replaces a `Gemm` over merged rows by a `MatMul` and an `Add` over samples.

    Exporters write a layer as a `Reshape` to a matrix, a `Gemm`, and a `Reshape` back. Samples can
    be split with padding (docs/decisions/0011), 6 on 4 ranks as 2, 2, 2 and none. Merged rows
    cannot, as 4 equal parts of 768 rows are a sample and a half each. So if the number of samples
    is not a power of two, the product is rewritten over samples, unless another op reads its merged
    rows, or it is scaled or transposed. ONNX Runtime fuses both into one `Gemm` again. Refuses
    nothing. Linear in the operations.
    """

    name: ClassVar[str] = "unmerge-rows"
    summary: ClassVar[str] = "Rewrite products of merged rows as products of samples."

    def run(self, module: ir.Module) -> None:
        if opsets(module).get("", 1) < _BROADCASTS:
            return
        namer = OpNamer(module)
        with module.context, ir.Location.unknown():
            for op in list(walk(function(module))):
                samples = _samples(op) if op.name == "onnx.Gemm" else None
                if samples is not None:
                    _unmerge(op, samples, namer)
            forget_removed(module)


def _samples(op: ir.Operation) -> tuple[int, ...] | None:
    """Return the sizes that are merged into the rows of a `Gemm`, ``None`` if it must stay."""
    back = {_shape_of_reshape(use.owner.operation) for use in op.results[0].uses}
    kept = next(iter(back)) if len(back) == 1 else None
    made = static_shape(op.results[0].type)
    if kept is None or made is None or not _is_plain(op):
        return None
    source = _source(op)
    before = None if source is None else static_shape(source.type)
    *samples, columns = kept
    if not before or len(samples) < 2 or columns != made[1] or before[0] != samples[0]:
        return None
    return None if is_power_of_two(samples[0]) else tuple(samples)


def _shape_of_reshape(op: ir.Operation) -> tuple[int, ...] | None:
    """Return the result shape of a `Reshape`, ``None`` for another op or an unknown size."""
    shape = static_shape(op.results[0].type) if op.name == "onnx.Reshape" else None
    return tuple(shape) if shape and 0 not in shape else None


def _source(op: ir.Operation) -> ir.Value | None:
    """Return the tensor that a `Reshape` merges into the first operand of a `Gemm`, or ``None``."""
    merge = made_by(op.operands[0], "Reshape")
    return None if merge is None else merge.operands[0]


def _is_plain(op: ir.Operation) -> bool:
    """Return whether a `Gemm` is a plain product plus a bias that is the same in all rows."""
    if attribute(op, "transA", 0) or attribute(op, "transB", 0) or attribute(op, "alpha", 1.0) != 1:
        return False
    if not _adds(op):
        return True
    added = static_shape(op.operands[2].type)
    same = added is not None and math.prod(added[:-1]) == 1
    return same and attribute(op, "beta", 1.0) == 1


def _adds(op: ir.Operation) -> bool:
    return len(op.operands) > 2 and not is_no_value(op.operands[2])


def _unmerge(op: ir.Operation, samples: tuple[int, ...], namer: OpNamer) -> None:
    """Replace a `Gemm` and each `Reshape` of its result by the product of samples."""
    x, weight = _source(op), op.operands[1]
    assert x is not None, f"{op.name}: reads no Reshape"
    inner, columns = static_shape(weight.type) or (0, 0)
    kind = tensor_type([*samples, columns], element_type(op.results[0]))
    if static_shape(x.type) != [*samples, inner]:
        x = _reshaped(op, x, (*samples, inner), namer)
    with ir.InsertionPoint(op):
        made = ir.Operation.create("onnx.MatMul", [kind], [x, weight], loc=op.location)
        if _adds(op):
            operands = [made.result, op.operands[2]]
            where = namer.location(op, "Add")
            made = ir.Operation.create("onnx.Add", [kind], operands, loc=where)
    for use in list(op.results[0].uses):
        back = use.owner.operation
        back.results[0].replace_all_uses_with(made.result)
        back.erase()
    op.erase()


def _reshaped(op: ir.Operation, x: ir.Value, shape: tuple[int, ...], namer: OpNamer) -> ir.Value:
    """Return ``x`` reshaped to ``shape`` right before ``op``."""
    literal = shape_literal(op, shape, namer)
    with ir.InsertionPoint(op):
        kind = tensor_type(shape, element_type(x))
        where = namer.location(op, "Reshape")
        return ir.Operation.create("onnx.Reshape", [kind], [x, literal], loc=where).result
