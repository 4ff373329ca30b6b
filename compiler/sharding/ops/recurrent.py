"""Recurrent networks: sequences of a batch and the two directions are independent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tensoropt.compiler.layout.rule import InnerStep, Rule
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.factors import present_factor, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import count, window_loop
from tensoropt.dialects.build import int_attr
from tensoropt.dialects.mlir import ir

__all__ = ["recurrent"]

# Indices of the factors over the batch and over the directions.
_BATCH, _WAYS = 0, 1

_X, _WEIGHTS, _LENGTHS, _STATES, _PEEPHOLES = 0, (1, 2, 3), 4, (5, 6), 7

_PER_WAY = ("activations", "activation_alpha", "activation_beta")

_REVERSES_SINCE = 10
"""First opset with ReverseSequence, and with a Slice that runs backwards."""


@sharding_rule("LSTM", "GRU", "RNN")
def recurrent(info: OpInfo) -> Rule:
    """Split the batch and the two directions.

    Hidden units cannot be split: every step multiplies the whole state of the previous step, so
    ranks would have to exchange it between steps, inside the operator.
    """
    batch_first = bool(info.attribute("layout", 0))
    x, state, result = (0, 0, 0) if batch_first else (1, 1, 2)
    ways = {**dict.fromkeys((*_WEIGHTS, _PEEPHOLES), 0), **dict.fromkeys(_STATES, 1 - state)}
    batches = {_X: x, _LENGTHS: 0, **dict.fromkeys(_STATES, state)}
    steps, (_, gates, features) = info.sizes(_X)[1 - x], info.shape(1)
    hidden = count(info.shape(2)[2:])
    halves = _halves(info)
    factors = [
        replace(
            present_factor(info, batches, {0: result, 1: state, 2: state}, padded=True), fills=True
        ),
        present_factor(
            info,
            ways,
            {0: _way_of_result(info), 1: 1 - state, 2: 1 - state},
            can_split=halves is not None,
        ),
        window_loop([steps, gates, (features or 1) + hidden]),
    ]
    return rule_of(
        info,
        factors,
        localize=_divide,
        flops_per_point=2.0,
        inner=tuple(
            InnerStep((_WAYS,), (_BATCH,), count([steps]) * size * info.inner_bytes, "copy")
            for size in (features or 1, hidden)
        ),
    )


def _way_of_result(info: OpInfo) -> int:
    """Return the dimension of the results of all steps that runs along the directions."""
    return 2 if info.attribute("layout", 0) else 1


def _halves(info: OpInfo) -> Mapping[str, list[Any]] | None:
    """Return the attributes of one direction; ``None`` if there is only one, or they differ."""
    if info.attribute("direction") != "bidirectional" or info.standard_version < _REVERSES_SINCE:
        return None
    found: dict[str, list[Any]] = {}
    for name in _PER_WAY:
        both = list(info.attribute(name) or ())
        half = both[: len(both) // 2]
        if half + half != both:
            return None
        found.update({name: half} if half else {})
    return found


def _divide(local: LocalOp) -> list[ir.Value]:
    """Return the results of the rank's sequences; sequences of padding have no steps."""
    if local.info.operand(_LENGTHS) is not None:
        lengths = local.fill_padding(local.operands[_LENGTHS], 0, _BATCH, 0)
        local.operands[_LENGTHS] = lengths
    return _one_way(local)


def _one_way(local: LocalOp) -> list[ir.Value]:
    """Return the results of one direction, run forwards; half of the ranks reverse the steps.

    All ranks run the same program, in which the direction is an attribute. The order of the steps
    is no attribute, so it can depend on the rank.
    """
    halves = _halves(local.info)
    axes = local.axes(_WAYS)
    if not axes or halves is None:
        return local.clone()
    turn = _Turn(local, axes)
    own: dict[str, ir.Attribute] = {"direction": ir.StringAttr.get("forward")}
    for name, half in halves.items():
        if isinstance(half[0], str):
            own[name] = ir.ArrayAttr.get([ir.StringAttr.get(value) for value in half])
        else:
            own[name] = ir.DenseF32ArrayAttr.get(half)
    made = local.clone({_X: turn.steps(local.operands[_X])}, own)
    if local.info.results[0] is not None:
        made[0] = turn.results(made[0])
    return made


class _Turn:
    """Reverses the steps on the ranks of the second direction."""

    def __init__(self, local: LocalOp, axes: tuple[int, ...]) -> None:
        self.local, self.axes, self.make = local, axes, Arithmetic(local)
        self.time = int(local.info.attribute("layout", 0))
        self.is_ragged = local.info.operand(_LENGTHS) is not None

    def steps(self, x: ir.Value) -> ir.Value:
        """Return ``x`` with its steps reversed; its first two dimensions are time and batch."""
        return self._ragged(x) if self.is_ragged else self._sliced(x)

    def results(self, y: ir.Value) -> ir.Value:
        """Return the results of one direction with their steps in the order of the input."""
        if not self.is_ragged:
            return self._sliced(y)
        way = _way_of_result(self.local.info)
        return self.make.unsqueeze(self._ragged(self.make.squeeze(y, [way])), [way])

    def _sliced(self, x: ir.Value) -> ir.Value:
        import numpy as np

        least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
        bounds = [[[0], [-1]], [[most], [least]], [[1], [-1]]]
        start, end, step = (self.local.axis_constant(np.array(b), self.axes) for b in bounds)
        return self.make.onnx("Slice", [x, start, end, self.make.ints([self.time]), step], x.type)

    def _ragged(self, x: ir.Value) -> ir.Value:
        """Return each sequence reversed up to its length; a length of 1 leaves it unchanged."""
        import numpy as np

        lengths = self.local.operands[_LENGTHS]
        turns = self.local.axis_constant(np.array([[0], [1]], np.int32), self.axes)
        turned = self.make.binary(
            "Max", self.make.mul(lengths, turns), self.make.scalar(1, lengths)
        )
        return self.make.onnx(
            "ReverseSequence",
            [x, self.make.cast(turned, ir.IntegerType.get_signless(64))],
            x.type,
            time_axis=int_attr(self.time),
            batch_axis=int_attr(1 - self.time),
        )
