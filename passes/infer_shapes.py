"""`infer-shapes`: give every value the type that ONNX's shape inference finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.shapes.refine import refine_types
from tensoropt.dialects.mlir import ir
from tensoropt.passes.base import Pass

__all__ = ["InferShapesPass"]


@dataclass(frozen=True)
class InferShapesPass(Pass):
    """Infers the shapes of all values from those of the arguments, and of @main's results.

    A dimension that is known already stays known. Where the kernels of ONNX Runtime make another
    shape than ONNX says (`compiler/shapes/shape_rules.py`), theirs counts. Operators of ONNX
    Runtime's own domains are inferred by ONNX Runtime. The shape of a `Reshape` becomes a literal
    where the names of symbolic dimensions tell it. Refuses operations that are not ONNX's, and
    types that do not fit.
    """

    name: ClassVar[str] = "infer-shapes"
    summary: ClassVar[str] = "Infer the shapes of all values from those of the arguments."

    def run(self, module: ir.Module) -> None:
        refine_types(module)
