"""Checks for operands that contradict each other or an attribute, which shape inference accepts.

An export can write down a size inside a model that leaves the same size open; the operands then
contradict each other at any other size.
"""

from __future__ import annotations

import math

from tensoropt.compiler.sharding.rule.factors import axis_of
from tensoropt.compiler.sharding.rule.op_info import MisfitError, OpInfo

__all__ = ["check_operands"]

_STATES = (5, 6)  # operands of recurrent networks with one state per sequence


def check_operands(info: OpInfo) -> None:
    """Raise MisfitError if known sizes prevent ONNX Runtime from running an op.

    Checked are a Reshape to another number of elements, a recurrent state with another batch size
    than its sequences, and a Scatter axis out of range.
    """
    check = _CHECKS.get(info.name)
    if check is not None and info.is_ranked:
        check(info)


def _reshape(info: OpInfo) -> None:
    source, result = info.shape(0), info.result_shape()
    if info.literal(1) is None or None in (*source, *result):
        return
    actual, wanted = (math.prod(size or 0 for size in shape) for shape in (source, result))
    if actual != wanted:
        raise _misfit(info, f"has {actual} elements, not the {wanted} of its shape {[*result]}")


def _recurrent(info: OpInfo) -> None:
    dim = 0 if info.attribute("layout", 0) else 1
    batch = info.shape(0)[dim]
    for state in filter(None, map(info.operand, _STATES)):
        size = state.shape[dim]
        if None not in (batch, size) and batch != size:
            raise _misfit(info, f"has a state of batch size {size} and sequences of {batch}")


def _scatter(info: OpInfo) -> None:
    rank = len(info.shape(0))
    if not 0 <= axis_of(info, 0, rank) < rank:
        axis = info.attribute("axis")
        raise MisfitError(info, f"has axis {axis}, expected one of -{rank} to {rank - 1}")


def _misfit(info: OpInfo, text: str) -> MisfitError:
    return MisfitError(info, f"{text}, expected the sizes that the model was exported with")


_CHECKS = {
    "Reshape": _reshape,
    "GRU": _recurrent,
    "LSTM": _recurrent,
    "RNN": _recurrent,
    "Scatter": _scatter,
}
