"""`dce`: remove unused operations and parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.shapes.refine import update_signature
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import YIELD, carried, function, is_onnx
from tensoropt.dialects.topt import keys
from tensoropt.passes.base import Pass
from tensoropt.passes.numbering import forget_removed

__all__ = ["DcePass"]


@dataclass(frozen=True)
class DcePass(Pass):
    """Removes `onnx.*` operations with unused results, and parameters that become unused.

    No ONNX operation has side effects. Unused inputs of the model are kept. Refuses nothing. Linear
    in the operations.
    """

    name: ClassVar[str] = "dce"
    summary: ClassVar[str] = "Remove unused operations and parameters."

    def run(self, module: ir.Module) -> None:
        with module.context, ir.Location.unknown():
            main = function(module)
            _sweep(main.regions[0].blocks[0])
            _drop_parameters(main)
            update_signature(module)
            forget_removed(module)


def _sweep(block: ir.Block) -> None:
    """Remove unused operations in one walk, from the last to the first."""
    for view in reversed(list(block.operations)):
        op = view.operation
        if is_onnx(op) and op.name != YIELD and not any(_is_used(value) for value in op.results):
            op.erase()
            continue
        for region in op.regions:
            for inner in region.blocks:
                _sweep(inner)


def _is_used(value: ir.Value) -> bool:
    return next(iter(value.uses), None) is not None


def _drop_parameters(main: ir.Operation) -> None:
    if "arg_attrs" not in main.attributes:
        return
    block, attributes = main.regions[0].blocks[0], carried(main, "arg_attrs")
    for index in reversed(range(len(attributes))):
        if keys.PARAM.on(attributes[index]) and not _is_used(block.arguments[index]):
            block.erase_argument(index)
            del attributes[index]
    main.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
