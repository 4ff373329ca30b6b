"""Names of the ops that passes add to a module."""

from __future__ import annotations

from tensoropt.compiler.protos.names import Namer
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import function, node_name, walk

__all__ = ["OpNamer"]


class OpNamer:
    """Names for ops that a pass makes in ``module``: no two named ops share one.

    A plan finds the strategy of an op by its name. Linear in the number of ops.
    """

    def __init__(self, module: ir.Module) -> None:
        names = (node_name(op) for op in walk(function(module)))
        self._namer = Namer(name for name in names if name is not None)

    def beside(self, op: ir.Operation, what: str) -> ir.Location:
        """Return the location of a new op that belongs to ``op``, which may have no name."""
        name = node_name(op)
        if name is None:
            return op.location
        return ir.Location.name(self._namer.unique(f"{name}.{what}"))
