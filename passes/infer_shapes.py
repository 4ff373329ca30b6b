"""`infer-shapes`: run ONNX shape inference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.shapes.refine import refine_types
from tensoropt.dialects.mlir import ir
from tensoropt.passes.base import Pass

__all__ = ["InferShapesPass"]


@dataclass(frozen=True)
class InferShapesPass(Pass):
    """Infers the shapes of all values from the shapes of the arguments, and of @main's results.

    Known dimensions are kept. If the kernels of ONNX Runtime disagree with the ONNX specification
    (`compiler/shapes/shape_rules.py`), the kernels win. ONNX Runtime infers the operators of its
    own domains. The shape of a `Reshape` becomes a literal if it follows from the names of symbolic
    dimensions. Refuses operations that are not ONNX's, and types that do not fit.
    """

    name: ClassVar[str] = "infer-shapes"
    summary: ClassVar[str] = "Infer the shapes of all values from the shapes of the arguments."

    def run(self, module: ir.Module) -> None:
        refine_types(module)
