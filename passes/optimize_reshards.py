"""`optimize-reshards`: pay for each distinct reshard of a tensor once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.passes.base import Pass

__all__ = ["OptimizeReshardsPass"]


@dataclass(frozen=True)
class OptimizeReshardsPass(Pass):
    """Merges reshards of one tensor to one layout into the first, and drops those that do nothing.

    Linear in the operations of `@main`; regions are not entered, reshards are not put there.
    Refuses nothing.
    """

    name: ClassVar[str] = "optimize-reshards"
    summary: ClassVar[str] = "Merge equal reshards of a tensor and drop those that do nothing."

    def run(self, module: ir.Module) -> None:
        first: dict[tuple[ir.Value, str], ir.Value] = {}
        for op in list(onnx.function(module).regions[0].blocks[0]):
            if op.operation.name == "topt.reshard":
                _merge(op.operation, first)


def _merge(op: ir.Operation, first: dict[tuple[ir.Value, str], ir.Value]) -> None:
    source, target = op.operands[0], str(op.attributes["dst"])
    if str(op.attributes["src"]) == target:
        same = source
    else:
        same = first.setdefault((source, target), op.results[0])
    if same != op.results[0]:
        op.results[0].replace_all_uses_with(same)
        op.erase()
