"""`optimize-reshards`: share reshards of a tensor and run shrinking reshards early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tensoropt.compiler.reshard.resharder import Resharder
from tensoropt.compiler.reshard.shared_tree import spread
from tensoropt.compiler.sharding.rule.describe import tensor_info
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import RESHARD, keys, layout_attr, layout_of
from tensoropt.passes.base import Pass
from tensoropt.passes.early_reshards import run_shrinking_reshards_early
from tensoropt.passes.reshards import reshard, take_part
from tensoropt.passes.strategies import resharder_of
from tensoropt.runtime.layout.layout import Layout

__all__ = ["OptimizeReshardsPass"]


@dataclass(frozen=True)
class OptimizeReshardsPass(Pass):
    """Merges equal reshards of a tensor, and makes each layout from the nearest available layout.

    For example, a partial sum that some uses read whole and others split is reduced once and then
    sliced, regardless of the order of uses: a layout that others are made from comes first, even if
    no use reads it. Constants are sliced from the layout they are stored in. Drops reshards that do
    nothing. A reshard to a smaller part runs once no other reader of its source is left, so that
    the source is freed. Linear in the operations of `@main`, times the cost of ``spread``; regions
    have no reshards. Refuses nothing.
    """

    name: ClassVar[str] = "optimize-reshards"
    summary: ClassVar[str] = "Merge equal reshards and make each layout from the nearest one."

    def run(self, module: ir.Module) -> None:
        function = onnx.function(module)
        with module.context, ir.Location.unknown():
            resharder, folded = resharder_of(module, function), onnx.folded_values(function)
            for (value, _), tensor in _tensors(function).items():
                tensor.merge()
                if value not in folded:
                    tensor.arrange(resharder)
            run_shrinking_reshards_early(function, resharder.mesh)


_PARTS = {"recompute": "backward"}
"""Recomputation and the backward pass share gathered state."""


def _tensors(function: ir.Operation) -> dict[tuple[ir.Value, str], _Tensor]:
    """Return the resharded tensors with their reshards in program order.

    A chain of reshards belongs to its first operand. State of a training step is resharded again in
    each part of the step, so that the result need not stay live.
    """
    roots: dict[ir.Value, ir.Value] = {}
    tensors: dict[tuple[ir.Value, str], _Tensor] = {}
    state = {value for value, own in onnx.arguments(function) if keys.STATE.on(own)}
    for op in function.regions[0].blocks[0]:
        if op.operation.name == RESHARD:
            read = op.operation.operands[0]
            value = roots[op.operation.results[0]] = roots.get(read, read)
            start = layout_of(op.operation.attributes["src"])
            phase = onnx.phase(op.operation) or ""
            part = _PARTS.get(phase, phase) if value in state else ""
            tensors.setdefault((value, part), _Tensor(value, start)).reshards.append(op.operation)
    return tensors


@dataclass
class _Tensor:
    """A tensor with its ``layout`` and its reshards."""

    value: ir.Value
    layout: Layout
    reshards: list[ir.Operation] = field(default_factory=list)

    def merge(self) -> None:
        """Keep only the first reshard to each layout."""
        values, kept = {self.layout: self.value}, []
        for op in self.reshards:
            target, result = layout_of(op.attributes["dst"]), op.results[0]
            if target in values:
                result.replace_all_uses_with(values[target])
                op.erase()
            else:
                values[target] = result
                kept.append(op)
        self.reshards = kept

    def arrange(self, resharder: Resharder) -> None:
        """Make every layout from its source in the cheapest tree, hoisting sources if needed."""
        info = tensor_info(self.value.type)
        made = {layout_of(op.attributes["dst"]): op for op in self.reshards}
        if info is None or not made:
            return
        tree = spread(resharder, info.sizes, info.item_bytes, self.layout, list(made))
        placed = {self.layout: self.value}
        for target, op in made.items():
            _place(target, op, tree, made, placed)


def _place(
    target: Layout,
    before: ir.Operation,
    tree: Mapping[Layout, Layout],
    made: Mapping[Layout, ir.Operation],
    placed: dict[Layout, ir.Value],
) -> None:
    """Put the reshard to ``target`` and all its sources no later than ``before``."""
    if target in placed:
        return
    source = tree[target]
    _place(source, before, tree, made, placed)
    if target not in made:
        placed[target] = reshard(before, placed[source], source, target)
        return
    op = made[target]
    if op != before:
        op.move_before(before)
        if keys.CHUNK.on(before.attributes):  # else it would keep the chunk of a later reader
            take_part(op, before)
    op.operands[0] = placed[source]
    op.attributes["src"] = layout_attr(source)
    placed[target] = op.results[0]
