"""`optimize-reshards`: pay for each distinct layout of a tensor once, from the nearest one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.layout.layout import Layout
from tensoropt.compiler.layout.reshard import Resharder
from tensoropt.compiler.sharding.describe import tensor_info
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import layout_attr, layout_of
from tensoropt.passes.base import Pass
from tensoropt.passes.strategies import resharder_of

__all__ = ["OptimizeReshardsPass"]


@dataclass(frozen=True)
class OptimizeReshardsPass(Pass):
    """Merges reshards of one tensor to one layout, and starts each from the nearest there is.

    A partial sum that some uses want whole and others split is reduced once and then cut. Constants
    are cut from the layout they are stored in. Drops reshards that do nothing. Linear in the
    operations of `@main`, times the layouts of a tensor; regions hold no reshards. Refuses nothing.
    """

    name: ClassVar[str] = "optimize-reshards"
    summary: ClassVar[str] = "Merge equal reshards of a tensor and start each from the nearest."

    def run(self, module: ir.Module) -> None:
        function = onnx.function(module)
        with module.context, ir.Location.unknown():
            state = _State(resharder_of(module, function), onnx.folded_values(function))
            for op in list(function.regions[0].blocks[0]):
                if op.operation.name == "topt.reshard":
                    state.visit(op.operation)


class _State:
    def __init__(self, resharder: Resharder, folded: set[ir.Value]) -> None:
        self.resharder = resharder
        self.folded = folded
        self.held: dict[ir.Value, dict[Layout, ir.Value]] = {}  # by the tensor first resharded
        self.roots: dict[ir.Value, ir.Value] = {}

    def visit(self, op: ir.Operation) -> None:
        source, result = op.operands[0], op.results[0]
        root = self.roots.get(source, source)
        held = self.held.setdefault(root, {layout_of(op.attributes["src"]): source})
        target = layout_of(op.attributes["dst"])
        if target in held:
            result.replace_all_uses_with(held[target])
            op.erase()
            return
        if root not in self.folded:
            self._start_from(op, self._nearest(op, held, target), held)
        held[target] = result
        self.roots[result] = root

    def _nearest(self, op: ir.Operation, held: dict[Layout, ir.Value], target: Layout) -> Layout:
        info = tensor_info(op.results[0].type)
        if info is None:
            return layout_of(op.attributes["src"])
        size = info.shape, info.item_bytes
        return min(held, key=lambda layout: self.resharder.path(*size, layout, target).time_s)

    def _start_from(self, op: ir.Operation, source: Layout, held: dict[Layout, ir.Value]) -> None:
        op.operands[0] = held[source]
        op.attributes["src"] = layout_attr(source)
