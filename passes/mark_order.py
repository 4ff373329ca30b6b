"""`mark-order`: say where the peak of memory depends on the order of operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.schedule.schedule import depth_first, in_order
from tensoropt.compiler.schedule.tasks import peaks, read_tasks
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
    module gets `topt.ordered`, and the sessions of its graphs keep the order. Refuses nothing.
    Linear in the operands of `@main`.
    """

    name: ClassVar[str] = "mark-order"
    summary: ClassVar[str] = "Mark a program whose peak of memory depends on its order."

    def run(self, module: ir.Module) -> None:
        program = read_tasks(function(module))
        orders = [depth_first(program, last_first=last) for last in (False, True)]
        highest = max(max(peaks(in_order(program, order))) for order in orders)
        attributes = module.operation.attributes
        keys.ORDERED.remove(attributes)
        if highest > (1 + _SLACK) * max(peaks(program)):
            with module.context:
                keys.ORDERED.set(attributes, True)
