"""Checks of asynchronous collectives and their waits."""

from __future__ import annotations

from math import inf

from tensoropt.dialects import onnx
from tensoropt.dialects.collectives import STARTED, members_of, ops_from
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.dialect import WAIT
from tensoropt.dialects.topt.keys import START, TAKES
from tensoropt.dialects.verifier.carrier import Carrier, InvalidError
from tensoropt.runtime.support.collectives import BY_IR_NAME

__all__ = ["check_start", "check_takes", "check_wait"]


def check_start(carrier: Carrier, _: ir.Attribute) -> None:
    """Raise InvalidError unless exactly one wait reads each result of the collective's group.

    The group consists of the collectives fused with it. The waits must be consecutive and in the
    order of the group. Linear in the operations of the block.
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
    if ops_from(waits[0], len(waits)) != waits:
        raise carrier.wrong(f"{where}, expected its waits in a row, got: others between them")


def check_wait(op: ir.Operation) -> None:
    """Raise InvalidError unless the wait reads the result of a started collective.

    Its `held` must be the operand of the collective if the collective reads that until it ends.
    """
    made = onnx.owner(op.operands[0])
    if made is None or made.name not in STARTED:
        got = "an argument" if made is None else made.name
        raise InvalidError(op, f"expected the result of one of {', '.join(STARTED)}, got: {got}")
    held = list(op.operands)[1:]
    wanted = [made.operands[0]] if BY_IR_NAME[made.name].retains_operand else []
    if held != wanted:
        expected = "the operand of the collective" if wanted else "none"
        got = f"{len(held)} operands"
        raise InvalidError(op, f"has a wrong 'held', expected {expected}, got: {got}")
    if op.results[0].type != op.operands[0].type:
        kinds = op.operands[0].type, op.results[0].type
        raise InvalidError(op, f"changes the type, expected {kinds[0]}, got: {kinds[1]}")


def check_takes(carrier: Carrier, _: ir.Attribute) -> None:
    """Raise InvalidError unless `topt.takes` has a node number and two times."""
    takes = TAKES.of(carrier.op.attributes)
    times = [takes.get("compute_s"), takes.get("sent_s")]
    valid = takes.keys() == {"node", "compute_s", "sent_s"} and isinstance(takes["node"], int)
    if not valid or not all(isinstance(s, float) and 0 <= s < inf for s in times):
        expected = "an i64 node, and f64 compute_s and sent_s, finite and at least 0"
        got = ", ".join(f"{name} = {value}" for name, value in takes.items()) or "nothing"
        raise carrier.wrong(f"has a wrong {TAKES.name}, expected {expected}, got: {got}")
