"""Checks of fused collectives."""

from __future__ import annotations

from tensoropt.dialects.collectives import COMBINED, kind_of, ops_from
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.keys import TOGETHER
from tensoropt.dialects.verifier.carrier import Carrier

__all__ = ["check_together"]

_FEWEST = 2


def check_together(carrier: Carrier, attribute: ir.Attribute) -> None:
    """Raise InvalidError unless `topt.together` counts consecutive collectives that can be fused.

    They must be of one kind, and none may read the result of another. Linear in the operations of
    the block.
    """
    first, count = carrier.op, int(ir.IntegerAttr(attribute).value)
    where = f"has a wrong {TOGETHER.name}"
    if first.name not in COMBINED:
        raise carrier.wrong(f"{where}, expected one of {', '.join(COMBINED)}, got: {first.name}")
    if count < _FEWEST:
        raise carrier.wrong(f"{where}, expected {_FEWEST} or more, got: {count}")
    members = ops_from(first, count)
    equal = sum(kind_of(op) == kind_of(first) for op in members)
    if equal < count:
        raise carrier.wrong(f"{where}, expected {count} equal collectives in a row, got: {equal}")
    made: set[ir.Value] = set()
    for number, op in enumerate(members):
        if number and TOGETHER.on(op.attributes):
            raise carrier.wrong(f"{where}, expected it only on the first of them, got: another")
        if not made.isdisjoint(op.operands):
            raise carrier.wrong(f"{where}, expected independent collectives, got: '{op}'")
        made.update(op.results)
