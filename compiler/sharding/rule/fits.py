"""Operands that contradict each other or an attribute, which inference lets pass.

A model that leaves a size open, but whose export wrote it down inside, has such ones at any other.
"""

from __future__ import annotations

import math

from tensoropt.compiler.sharding.rule.factors import axis_of
from tensoropt.compiler.sharding.rule.op_info import MisfitError, OpInfo

__all__ = ["check_fits"]

_STATES = (5, 6)  # the operands of recurrent networks that hold a state for each sequence


def check_fits(info: OpInfo) -> None:
    """Raise MisfitError for an op that ONNX Runtime cannot run at its sizes, as far as is known:
    a Reshape to another number of elements, a state of another batch than the sequences', an axis
    of a Scatter that is not there."""
    check = _CHECKS.get(info.name)
    if check is not None and info.is_ranked:
        check(info)


def _reshape(info: OpInfo) -> None:
    source, result = info.shape(0), info.result_shape()
    if info.literal(1) is None or None in (*source, *result):
        return
    there, wanted = (math.prod(size or 0 for size in shape) for shape in (source, result))
    if there != wanted:
        raise _misfit(info, f"has not as many elements as its shape {[*result]}")


def _recurrent(info: OpInfo) -> None:
    place = 0 if info.attribute("layout", 0) else 1
    batch = info.shape(0)[place]
    for state in filter(None, map(info.operand, _STATES)):
        own = state.shape[place]
        if None not in (batch, own) and batch != own:
            raise _misfit(info, f"has a state for a batch of {own} and sequences of one of {batch}")


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
