"""Checks collectives that begin before they are waited for, and their waits."""

from __future__ import annotations

from math import inf

from tensoropt.compiler.layout.collective import HOLDING
from tensoropt.dialects import onnx
from tensoropt.dialects.collectives import STARTED, from_on, members_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.dialect import WAIT
from tensoropt.dialects.topt.keys import START, TAKES
from tensoropt.dialects.verifier.carrier import Carrier, InvalidError

__all__ = ["check_start", "check_takes", "check_wait"]


def check_start(carrier: Carrier, _: ir.Attribute) -> None:
    """Raise InvalidError unless the results of the collective, and of those that are sent as one
    with it, are read by waits alone: one each, in a row, in their order.

    Linear in the operations of the block.
    """
    op, where = carrier.op, f"has a wrong {START.name}"
    if op.name not in STARTED:
        raise carrier.wrong(f"{where}, expected one of {', '.join(STARTED)}, got: {op.name}")
    waits = []
    for member in members_of(op):
        readers = [use.owner.operation for use in member.results[0].uses]
        if [reader.name for reader in readers] != [WAIT]:
            got = ", ".join(sorted(reader.name for reader in readers)) or "none"
            raise carrier.wrong(f"{where}, expected one {WAIT} to read its result, got: {got}")
        waits.append(readers[0])
    if from_on(waits[0], len(waits)) != waits:
        raise carrier.wrong(f"{where}, expected its waits in a row, got: others between them")


def check_wait(op: ir.Operation) -> None:
    """Raise InvalidError unless the wait reads what a collective with a start made, and holds what
    that reads until it ends."""
    made = onnx.owner(op.operands[0])
    if made is None or made.name not in STARTED:
        got = "an argument" if made is None else made.name
        raise InvalidError(op, f"expected the result of one of {', '.join(STARTED)}, got: {got}")
    held = list(op.operands)[1:]
    wanted = [made.operands[0]] if STARTED[made.name] in HOLDING else []
    if held != wanted:
        expected = "what the collective reads" if wanted else "none"
        got = f"{len(held)} operands"
        raise InvalidError(op, f"holds a wrong operand, expected {expected}, got: {got}")
    if op.results[0].type != op.operands[0].type:
        kinds = op.operands[0].type, op.results[0].type
        raise InvalidError(op, f"changes the type, expected {kinds[0]}, got: {kinds[1]}")


def check_takes(carrier: Carrier, _: ir.Attribute) -> None:
    """Raise InvalidError unless what an operation takes are a number and two times."""
    takes = TAKES.of(carrier.op.attributes)
    times = [takes.get("compute_s"), takes.get("sent_s")]
    valid = takes.keys() == {"node", "compute_s", "sent_s"} and isinstance(takes["node"], int)
    if not valid or not all(isinstance(s, float) and 0 <= s < inf for s in times):
        expected = "an i64 node, and f64 compute_s and sent_s, finite and from 0 on"
        got = ", ".join(f"{name} = {value}" for name, value in takes.items()) or "nothing"
        raise carrier.wrong(f"has a wrong {TAKES.name}, expected {expected}, got: {got}")
