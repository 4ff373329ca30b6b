"""`fold-transposes`: fold transpositions of weights into the products that read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tensoropt.compiler.protos.types import tensor_element
from tensoropt.dialects.build import int_attr
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import (
    attribute,
    attributes,
    folded_values,
    function,
    op_name,
    opsets,
    require_domain,
    walk,
)
from tensoropt.passes.base import Pass
from tensoropt.passes.numbering import forget_removed

__all__ = ["FoldTransposesPass"]

_MICROSOFT = "com.microsoft"
_FUSED = op_name(_MICROSOFT, "FusedMatMul")
_FLAGS = ("transA", "transB")

# The first opset in which Gemm needs no third operand.
_GEMM_SINCE = 11


@dataclass(frozen=True)
class FoldTransposesPass(Pass):
    """Folds the transposition of a weight into the products that read it.

    ONNX Runtime computes the `Transpose` of a weight when it loads a graph. If the weight itself is
    also read, as when an embedding and the last layer share a weight, both stay in memory. `Gemm`
    and `FusedMatMul` of `com.microsoft` can read a transposed matrix. So if the transposition swaps
    the last two dimensions, and only products of floating point numbers read its result, a `MatMul`
    of matrices becomes a `Gemm` and any other `MatMul` a `FusedMatMul`. With ``all`` this includes
    weights without other readers: a training step also reads them to update them. Refuses nothing.
    Linear in the operations.
    """

    name: ClassVar[str] = "fold-transposes"
    summary: ClassVar[str] = "Fold transpositions of weights into the products that read them."

    all: bool = False

    def run(self, module: ir.Module) -> None:
        with module.context, ir.Location.unknown():
            for weight, turned in _transposed(function(module)).items():
                has_others = sum(1 for _ in weight.uses) > len(turned)
                uses = (use for op in turned for use in op.results[0].uses)
                if not (self.all or has_others) or not all(map(_is_foldable, uses)):
                    continue
                for op in turned:
                    # Every turn replaces a reader, which ends its use.
                    while (use := next(iter(op.results[0].uses), None)) is not None:
                        _turn(module, use.owner.operation, use.operand_number, weight)
                    op.erase()
            forget_removed(module)


def _transposed(main: ir.Operation) -> Mapping[ir.Value, list[ir.Operation]]:
    """Return the `Transpose` ops that swap the last two dimensions of a weight, by weight."""
    weights, found = folded_values(main), dict[ir.Value, list[ir.Operation]]()
    for op in walk(main):
        if op.name == "onnx.Transpose" and op.operands[0] in weights and _swaps(op):
            found.setdefault(op.operands[0], []).append(op)
    return found


def _swaps(op: ir.Operation) -> bool:
    kind = op.operands[0].type
    if not isinstance(kind, ir.RankedTensorType) or kind.rank < 2:
        return False
    order = [*range(kind.rank)]
    swapped = [*order[:-2], order[-1], order[-2]]
    return list(attribute(op, "perm", order[::-1])) == swapped


def _is_foldable(use: ir.OpOperand) -> bool:
    """Return whether the reader can read this operand transposed."""
    op, index = use.owner.operation, use.operand_number
    if index > 1 or op.name not in ("onnx.MatMul", "onnx.Gemm", _FUSED):
        return False
    kinds = [value.type for value in list(op.operands)[:2]]
    if any(not isinstance(kind, ir.RankedTensorType) or kind.rank < 2 for kind in kinds):
        return False
    return tensor_element(kinds[0]).is_float and not attribute(op, f"transBatch{'AB'[index]}")


def _turn(module: ir.Module, op: ir.Operation, index: int, weight: ir.Value) -> None:
    """Replace ``op`` by a product that reads ``weight``, transposed, as operand ``index``."""
    flag, operands = _FLAGS[index], list(op.operands)
    operands[index] = weight
    copied: dict[str, Any] = {name: op.attributes[name] for name in attributes(op)}
    copied[flag] = int_attr(1 - attribute(op, flag, 0))
    name = str(op.name)
    if op.name == "onnx.MatMul":  # has no flags
        flat = all(ir.RankedTensorType(value.type).rank == 2 for value in op.operands)
        name = "onnx.Gemm" if flat and opsets(module)[""] >= _GEMM_SINCE else _FUSED
    if name == _FUSED:
        require_domain(module, _MICROSOFT)
    made = ir.Operation.create(
        name,
        results=[op.results[0].type],
        operands=operands,
        attributes=copied,
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    op.results[0].replace_all_uses_with(made.result)
    op.erase()
