"""Builder of `topt.reshard`."""

from __future__ import annotations

from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import ReshardOp, keys, layout_attr
from tensoropt.runtime.layout.layout import Layout

__all__ = ["reshard", "take_part"]


def reshard(before: ir.Operation, value: ir.Value, source: Layout, target: Layout) -> ir.Value:
    """Return ``value`` resharded from ``source`` to ``target`` right before the op ``before``.

    In a training step the reshard gets the phase and the chunk of that op.
    """
    with ir.InsertionPoint(before):
        made = ReshardOp(
            input=value,
            src=layout_attr(source),
            dst=layout_attr(target),
            output=value.type,
            loc=before.location,
        )
    take_part(made.operation, before)
    return made.output


def take_part(op: ir.Operation, other: ir.Operation) -> None:
    """Give ``op`` the phase and the chunk of ``other``, if that has them."""
    for key in (keys.PHASE, keys.CHUNK):
        if key.on(other.attributes):
            op.attributes[key.name] = other.attributes[key.name]
