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
    """Marks a program that takes more memory in the order of ONNX Runtime's own than in its order.

    That runs nodes depth first. If the peak would so be more than 1% higher, the module gets
    `topt.ordered`, and the sessions of its graphs keep the order. Refuses nothing. Linear in the
    operands of `@main`.
    """

    name: ClassVar[str] = "mark-order"
    summary: ClassVar[str] = "Mark a program whose peak of memory depends on its order."

    def run(self, module: ir.Module) -> None:
        program = read_tasks(function(module))
        deep = in_order(program, depth_first(program))
        attributes = module.operation.attributes
        keys.ORDERED.remove(attributes)
        if max(peaks(deep)) > (1 + _SLACK) * max(peaks(program)):
            with module.context:
                keys.ORDERED.set(attributes, True)
