"""Steps in bfloat16 on CPUs, where ONNX Runtime has no kernels in this type."""

from __future__ import annotations

from dataclasses import dataclass

import onnxruntime as ort
from training.steps import Step

from tensoropt.dialects import onnx
from tensoropt.dialects.build import Build
from tensoropt.dialects.kernels import is_bfloat16
from tensoropt.dialects.mlir import ir

__all__ = ["RoundedStep"]

_AS_THEY_ARE = ("onnx.Cast", onnx.CONSTANT, onnx.NO_VALUE, f"onnx.{onnx.ATTENTION}",
                f"onnx.{onnx.ATTENTION_GRADIENT}")  # fmt: skip


@dataclass
class RoundedStep(Step):
    """A step whose operators compute in float32 and round their results to bfloat16.

    The kernels of attention compute in bfloat16 themselves.
    """

    def _export(self, target, source) -> None:  # type: ignore[no-untyped-def]
        with self.module.context, ir.Location.unknown():
            block = onnx.function(self.module).regions[0].blocks[0]
            for op in [view.operation for view in block]:
                if onnx.is_onnx(op) and op.name not in _AS_THEY_ARE:
                    _widen(op)
        super()._export(target, source)

    def _options(self) -> ort.SessionOptions:
        options = super()._options()
        # Optimisations drop casts to a narrow type and back.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        return options


def _widen(op: ir.Operation) -> None:
    make, wide, narrow = Build(op.location, 20), ir.F32Type.get(), ir.BF16Type.get()
    with ir.InsertionPoint(op):
        for index, value in enumerate(op.operands):
            if is_bfloat16(value.type):
                op.operands[index] = make.cast(value, wide)
    rounded = [value for value in op.results if is_bfloat16(value.type)]
    for value in rounded:
        value.set_type(ir.RankedTensorType.get(ir.RankedTensorType(value.type).shape, wide))
        with ir.InsertionPoint(op):
            cast = make.cast(value, narrow)
        made = ir.OpResult(cast).owner.operation
        made.move_after(op)
        value.replace_all_uses_except(cast, made)
