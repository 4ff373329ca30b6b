"""Keeping the references of a training step whole where a pass removes operations."""

from __future__ import annotations

from collections.abc import Iterator

from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.keys import FOLLOWS, GRADIENTS, ID, REPEATS, Carried

__all__ = ["forget_removed"]


def forget_removed(module: ir.Module) -> None:
    """Take away from the operations that are left what refers to one that is not.

    For a pass that removes operations. An operation whose leader is gone is its own, and a gradient
    counts where it and its value are there. Linear.
    """
    main = onnx.function(module)
    ops = [op.operation for op in main.regions[0].blocks[0]]
    numbers = set(_numbers(main, ops))
    for op in ops if numbers else ():
        for key in (FOLLOWS, REPEATS):
            if key.on(op.attributes) and key.of(op.attributes) not in numbers:
                key.remove(op.attributes)
        if GRADIENTS.on(op.attributes):
            _forget_gradients(op, numbers)


def _numbers(main: ir.Operation, ops: list[ir.Operation]) -> Iterator[int]:
    carried: list[Carried] = [own for _, own in onnx.arguments(main)]
    for attributes in (*carried, *(op.attributes for op in ops)):
        if ID.on(attributes):
            yield ID.of(attributes)


def _forget_gradients(op: ir.Operation, numbers: set[int]) -> None:
    fours = list(GRADIENTS.of(op.attributes))
    kept = [
        number
        for at in range(0, len(fours), 4)
        if {fours[at], fours[at + 2]} <= numbers
        for number in fours[at : at + 4]
    ]
    with op.context:
        GRADIENTS.set(op.attributes, kept)
