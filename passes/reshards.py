"""Builder of `topt.reshard`."""

from __future__ import annotations

from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import ReshardOp, keys, layout_attr
from tensoropt.runtime.layout.layout import Layout

__all__ = ["reshard"]


def reshard(before: ir.Operation, value: ir.Value, source: Layout, target: Layout) -> ir.Value:
    """Return ``value`` resharded from ``source`` to ``target`` right before the op ``before``.

    In a training step the reshard gets the phase of that op.
    """
    with ir.InsertionPoint(before):
        made = ReshardOp(
            input=value,
            src=layout_attr(source),
            dst=layout_attr(target),
            output=value.type,
            loc=before.location,
        )
    phase = keys.PHASE.get(before.attributes)
    if phase is not None:
        keys.PHASE.set(made.operation.attributes, phase)
    return made.output
