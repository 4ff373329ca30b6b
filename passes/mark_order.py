"""`mark-order`: mark programs with a peak memory that depends on the order of operations."""

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

    ONNX Runtime sorts nodes depth first, and its fusions change that order. If the peak of a
    depth-first order, by first or by last operand, is more than 1% higher, the module gets
    `topt.ordered`, and the sessions of its graphs keep the order. So does every training step with
    convolutions: ONNX Runtime fuses and inserts nodes around them, and its new nodes run last, so
    their operands stay live. So does every program with asynchronous collectives. A program with
    strings is never marked, as ONNX Runtime cannot read back the string constants it writes.
    Refuses nothing. Linear in the operands of `@main`.
    """

    name: ClassVar[str] = "mark-order"
    summary: ClassVar[str] = "Mark a program that needs its order of operations for its peak."

    def run(self, module: ir.Module) -> None:
        main = function(module)
        program = read_tasks(main)
        orders = [depth_first(program, last_first=last) for last in (False, True)]
        highest = max(max(peaks(in_order(program, order))) for order in orders)
        attributes = module.operation.attributes
        keys.ORDERED.remove(attributes)
        depends = highest > (1 + _SLACK) * max(peaks(program))
        ops = [op.operation for op in main.regions[0].blocks[0]]
        overlaps = any(keys.START.on(op.attributes) for op in ops)
        trains = any(keys.PHASE.on(op.attributes) for op in ops)
        trains_convolutions = trains and any(op.name == "onnx.Conv" for op in ops)
        if (depends or overlaps or trains_convolutions) and not _has_strings(main):
            with module.context:
                keys.ORDERED.set(attributes, True)


def _has_strings(main: ir.Operation) -> bool:
    block = main.regions[0].blocks[0]
    made = (value for op in block for value in op.operation.results)
    types = {value.type for value in (*block.arguments, *made)}
    tensors = [t for t in types if isinstance(t, ir.RankedTensorType | ir.UnrankedTensorType)]
    elements = (element_of(str(t.element_type)) for t in tensors)
    return any(element is not None and element.name == "STRING" for element in elements)
