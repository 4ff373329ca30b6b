"""`keep-whole`: keep the program of whole tensors next to the program of one rank."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import ClassVar

from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.passes.base import Pass

__all__ = ["KeepWholePass", "drop_whole", "whole_of"]

_NAME = "whole"


@dataclass(frozen=True)
class KeepWholePass(Pass):
    """Keeps a copy of `@main` in `module @whole`, the source of a plan's data on whole tensors.

    `partition` drops the global shapes, layouts and strategies. Replaces an existing copy. Linear
    in the operations. Refuses nothing.
    """

    name: ClassVar[str] = "keep-whole"
    summary: ClassVar[str] = "Keep the program of whole tensors for the plan's data on them."

    def run(self, module: ir.Module) -> None:
        main = onnx.function(module)
        drop_whole(module)
        with ir.InsertionPoint(module.body), ir.Location.unknown():
            kept = ir.Operation.create(
                "builtin.module", regions=1, attributes={"sym_name": ir.StringAttr.get(_NAME)}
            )
            kept.regions[0].blocks.append()
            kept.regions[0].blocks[0].append(main.clone().operation)


def whole_of(module: ir.Module) -> ir.Module:
    """Return a new module with the program of whole tensors; raises UserError if there is none."""
    for op in module.body:
        if _is_whole(op.operation):
            written = BytesIO()
            op.operation.write_bytecode(written)
            return ir.Module.parse(written.getvalue(), module.context)
    raise UserError("the module has no module @whole, expected keep-whole to run before partition")


def drop_whole(module: ir.Module) -> None:
    """Remove the program of whole tensors if present."""
    for op in list(module.body):
        if _is_whole(op.operation):
            op.operation.erase()


def _is_whole(op: ir.Operation) -> bool:
    return bool(
        op.name == "builtin.module"
        and "sym_name" in op.attributes
        and ir.StringAttr(op.attributes["sym_name"]).value == _NAME
    )
