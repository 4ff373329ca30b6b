"""Names of the ops that passes add to a module."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.protos.names import Namer
from tensoropt.dialects.build import Build
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import function, node_name, walk

__all__ = ["NamedBuild", "OpNamer"]


class OpNamer:
    """Names for ops that a pass adds to ``module``; no two named ops share a name.

    A plan finds the strategy of an op by its name. Linear in the number of ops.
    """

    def __init__(self, module: ir.Module) -> None:
        names = (node_name(op) for op in walk(function(module)))
        self._namer = Namer(name for name in names if name is not None)

    def location(self, op: ir.Operation, what: str) -> ir.Location:
        """Return the location of a new op named after ``op``, which may have no name."""
        name = node_name(op)
        if name is None:
            return op.location
        return ir.Location.name(self._namer.unique(f"{name}.{what}"))


class NamedBuild(Build):
    """Builds the ops that replace ``op``, each with a unique name."""

    def __init__(self, namer: OpNamer, op: ir.Operation, opset: int) -> None:
        super().__init__(op.location, opset)
        object.__setattr__(self, "namer", namer)
        object.__setattr__(self, "op", op)

    namer: OpNamer
    op: ir.Operation

    def onnx_many(
        self,
        op_type: str,
        operands: Sequence[ir.Value],
        results: Sequence[ir.Type],
        **attributes: ir.Attribute,
    ) -> list[ir.Value]:
        """Return the results of a new ``onnx.<op_type>``; attributes are MLIR attributes."""
        build = Build(self.namer.location(self.op, op_type), self.opset)
        return build.onnx_many(op_type, operands, results, **attributes)
