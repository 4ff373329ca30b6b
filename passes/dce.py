"""`dce`: remove what nothing uses."""

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
    """Removes `onnx.*` operations whose results are unused, and parameters that are left unused.

    No ONNX operation has an effect beside its results. Inputs of the model stay, used or not.
    Refuses nothing. Linear in the operations.
    """

    name: ClassVar[str] = "dce"
    summary: ClassVar[str] = "Remove operations and parameters that nothing uses."

    def run(self, module: ir.Module) -> None:
        with module.context, ir.Location.unknown():
            main = function(module)
            _sweep(main.regions[0].blocks[0])
            _drop_parameters(main)
            update_signature(module)
            forget_removed(module)


def _sweep(block: ir.Block) -> None:
    """Remove unused operations, the last first, so that one walk is enough."""
    for held in reversed(list(block.operations)):
        op = held.operation
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
