"""`insert-reshards`: make every disagreement between producer and consumer explicit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.keys import CHUNK
from tensoropt.passes.base import Pass
from tensoropt.passes.reshards import reshard, take_part
from tensoropt.passes.strategies import signature_layouts, strategy_of
from tensoropt.runtime.layout.layout import Layout

__all__ = ["InsertReshardsPass"]


@dataclass(frozen=True)
class InsertReshardsPass(Pass):
    """Inserts a `topt.reshard` before every op that reads a tensor in a layout it does not have.

    Each use gets its own reshard; `optimize-reshards` merges equal ones. Refuses an op without
    `topt.strategy` and an argument or result without `topt.layout`. Linear in the operands.
    """

    name: ClassVar[str] = "insert-reshards"
    summary: ClassVar[str] = "Insert topt.reshard wherever producer and consumer disagree."
    reaches: ClassVar[str | None] = "reshard"

    def run(self, module: ir.Module) -> None:
        function = onnx.function(module)
        with module.context:
            block, given = function.regions[0].blocks[0], signature_layouts(function, "arg_attrs")
            layouts = dict[ir.Value, Layout](zip(block.arguments, given, strict=True))
            end = _last_before_update(function)
            for op in [view.operation for view in block]:
                if op.name == onnx.NO_VALUE:
                    continue
                if op.name == "func.return":
                    wanted, made = signature_layouts(function, "res_attrs"), list[Layout]()
                else:
                    wanted, made = strategy_of(op)
                operands = onnx.read_by(op)
                for number, (value, layout) in enumerate(zip(operands, wanted, strict=True)):
                    if number and onnx.is_barrier(op):
                        continue  # nothing reads the elements
                    if value in layouts and layouts[value] != layout:
                        before = op if end is None else _place(op, value, end)
                        new = reshard(before, value, layouts[value], layout)
                        if before != op:
                            _belong_to_maker(new, value)
                        _use(op, number, value, new)
                layouts.update(zip(op.results, made, strict=True))


def _last_before_update(function: ir.Operation) -> ir.Operation | None:
    """Return the last op of a training step before the update; ``None`` for a model.

    Its result is a gradient that no other op before the update reads.
    """
    last = None
    for op in function.regions[0].blocks[0]:
        if onnx.phase(op.operation) not in (None, "update"):
            last = op.operation
    return last


def _place(op: ir.Operation, value: ir.Value, end: ir.Operation) -> ir.Operation:
    """Return the op before which ``value`` is resharded for ``op``.

    A result of the step that the backward pass computes is resharded before ``end``, within that
    pass. Other values are resharded right before ``op``.
    """
    made = onnx.owner(value)
    if op.name != "func.return" or made is None or onnx.phase(made) in (None, "update"):
        return op
    return end


def _belong_to_maker(new: ir.Value, value: ir.Value) -> None:
    """Give the reshard ``new`` the chunk of the op that makes ``value``, if it has one.

    The results of a chunk, such as the loss, are complete when its forward pass ends.
    """
    made, reshards = onnx.owner(value), onnx.owner(new)
    assert made is not None
    assert reshards is not None
    if CHUNK.on(made.attributes):
        take_part(reshards, made)


def _use(op: ir.Operation, number: int, value: ir.Value, new: ir.Value) -> None:
    """Replace operand ``number`` of ``op`` by ``new``; numbers past the operands are captures."""
    if number < len(op.operands):
        op.operands[number] = new
        return
    for inner in onnx.walk(op):
        for position, operand in enumerate(inner.operands):
            if operand == value:
                inner.operands[position] = new
