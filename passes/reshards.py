"""Building the `topt.reshard` that several passes insert."""

from __future__ import annotations

from tensoropt.compiler.layout.layout import Layout
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import ReshardOp, layout_attr

__all__ = ["reshard"]

_PHASE = "topt.phase"


def reshard(before: ir.Operation, value: ir.Value, source: Layout, target: Layout) -> ir.Value:
    """Move ``value``, which lies in ``source``, to ``target`` just before the op ``before``.

    In a training step it belongs to the phase of that op.
    """
    with ir.InsertionPoint(before):
        made = ReshardOp(
            input=value,
            src=layout_attr(source),
            dst=layout_attr(target),
            output=value.type,
            loc=before.location,
        )
    if _PHASE in before.attributes:
        made.operation.attributes[_PHASE] = before.attributes[_PHASE]
    return made.output
