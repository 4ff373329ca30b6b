"""Maintenance of references between operations of a training step."""

from __future__ import annotations

from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.keys import FOLLOWS, GRADIENTS, ID, REPEATS, Carried

__all__ = ["forget_removed"]


def forget_removed(module: ir.Module) -> None:
    """Remove references to operations that a pass has removed.

    An operation without its leader becomes its own leader. A gradient is kept only if both it and
    its value still exist. Linear.
    """
    main = onnx.function(module)
    ops = [op.operation for op in main.regions[0].blocks[0]]
    carried: list[Carried] = [own for _, own in onnx.arguments(main)]
    carried += [op.attributes for op in ops]
    numbers = {ID.of(attributes) for attributes in carried if ID.on(attributes)}
    for op in ops if numbers else ():
        for key in (FOLLOWS, REPEATS):
            if key.on(op.attributes) and key.of(op.attributes) not in numbers:
                key.remove(op.attributes)
        if GRADIENTS.on(op.attributes):
            _forget_gradients(op, numbers)


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
