"""`mark-order`: say where the peak of memory depends on the order of operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.schedule.schedule import depth_first, in_order
from tensoropt.compiler.schedule.tasks import peaks, read_tasks
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import function
from tensoropt.dialects.topt import keys
from tensoropt.passes.base import Pass

__all__ = ["MarkOrderPass"]

_SLACK = 0.01


@dataclass(frozen=True)
class MarkOrderPass(Pass):
    """Marks a program that takes more memory in other orders than its own.

    ONNX Runtime sorts nodes by itself, depth first, but what it fuses changes that order. If the
    peak is more than 1% higher depth first, whether the first operand goes first or the last, the
    module gets `topt.ordered`, and the sessions of its graphs keep the order. So does every
    training step with convolutions: ONNX Runtime fuses and adds to what is around them, and what
    it makes runs last, when all that it reads has had to wait. And so does every program with
    collectives that begin before they are waited for. A program with strings does not get
    it: what ONNX Runtime writes of its constants it does not read again. Refuses nothing. Linear
    in the operands of `@main`.
    """

    name: ClassVar[str] = "mark-order"
    summary: ClassVar[str] = "Mark a program whose peak of memory depends on its order."

    def run(self, module: ir.Module) -> None:
        main = function(module)
        program = read_tasks(main)
        orders = [depth_first(program, last_first=last) for last in (False, True)]
        highest = max(max(peaks(in_order(program, order))) for order in orders)
        attributes = module.operation.attributes
        keys.ORDERED.remove(attributes)
        depends = highest > (1 + _SLACK) * max(peaks(program))
        depends = depends or _trains_convolutions(main) or _overlaps(main)
        if depends and not _has_strings(main):
            with module.context:
                keys.ORDERED.set(attributes, True)


def _trains_convolutions(main: ir.Operation) -> bool:
    ops = [op.operation for op in main.regions[0].blocks[0]]
    trains = any(keys.PHASE.get(op.attributes) == "backward" for op in ops)
    return trains and any(op.name == "onnx.Conv" for op in ops)


def _overlaps(main: ir.Operation) -> bool:
    return any(keys.START.on(op.operation.attributes) for op in main.regions[0].blocks[0])


def _has_strings(main: ir.Operation) -> bool:
    block = main.regions[0].blocks[0]
    made = (value for op in block for value in op.operation.results)
    types = {value.type for value in (*block.arguments, *made)}
    tensors = [one for one in types if isinstance(one, ir.RankedTensorType | ir.UnrankedTensorType)]
    elements = (element_of(str(one.element_type)) for one in tensors)
    return any(element is not None and element.name == "STRING" for element in elements)
