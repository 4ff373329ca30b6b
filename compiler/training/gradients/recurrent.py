"""LSTM, GRU and RNN: the product of all inputs, then the steps of each direction."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.training.gradients.cells import ACTIVATIONS, split
from tensoropt.compiler.training.gradients.products import einsum
from tensoropt.compiler.training.gradients.recurrence import RECURRENCE
from tensoropt.compiler.training.gradients.registry import ForwardOp, decomposition
from tensoropt.dialects.build import int_attr, shape_of, tensor_type
from tensoropt.dialects.mlir import ir

__all__: list[str] = []

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_BIAS, _LENGTHS, _STATES, _PEEPHOLES = 3, 4, (5, 6), 7


@decomposition("LSTM", "GRU", "RNN")
def recurrent(f: ForwardOp) -> Sequence[ir.Value | None]:
    """Return the results of all steps and the last states, with all directions concatenated."""
    _check(f)
    layout, make = int(f.info.attribute("layout", 0)), f.make
    x = f.operands[0] if layout else make.transpose(f.operands[0], [1, 0, 2])
    directions = [_direction(f, x, i, layout) for i in range(f.info.shape(1)[0] or 1)]
    y, *states = (make.concat(list(values), 2) for values in zip(*directions, strict=True))
    y = y if layout else make.transpose(y, [1, 2, 0, 3])
    last = [make.squeeze(state, [1]) for state in states]
    last = [state if layout else make.transpose(state, [1, 0, 2]) for state in last]
    found = [y, *last]
    return [found[i] if f.has_result(i) else None for i in range(len(f.op.results))]


def _check(f: ForwardOp) -> None:
    """Raise UserError for options that have no gradient."""
    for name in ("clip", "input_forget"):
        if f.info.attribute(name):
            raise f.unsupported(f"it has the attribute {name}, expected none")
    unknown = [name for name in _activations(f) if name not in ACTIVATIONS]
    if unknown:
        raise f.unsupported(f"activation {unknown[0]}, expected one of {', '.join(ACTIVATIONS)}")


def _activations(f: ForwardOp) -> tuple[str, ...]:
    """Return the names of the activations of all directions in turn."""
    directions = f.info.shape(1)[0] or 1
    attribute = f.info.attribute("activations")
    return (
        tuple(name.capitalize() for name in attribute)
        if attribute
        else _DEFAULTS[f.info.name] * directions
    )


def _direction(f: ForwardOp, x: ir.Value, direction: int, layout: int) -> list[ir.Value]:
    """Return the result `b t 1 h` and the last states `b 1 1 h` of one direction."""
    make, kind = f.make, f.info.name
    is_reversed = str(f.info.attribute("direction", "forward")) == "reverse"
    backwards = is_reversed or direction == 1
    count, hidden = _GATES[kind], f.info.shape(2)[2] or 1
    w = _slice_direction(f, 1, direction, [count, hidden, f.info.shape(1)[2] or 1])
    r = _slice_direction(f, 2, direction, [count, hidden, 1, hidden])
    gates = einsum(make, [(x, "bti"), (w, "ghi")], "btgh")
    gates, weights, name = _with_biases(f, direction, gates, r)
    if f.has(_PEEPHOLES):
        name = "PeepholeLSTM"
        weights += split(
            make, _slice_direction(f, _PEEPHOLES, direction, [3, hidden]), 0, (1, 1, 1)
        )
    lengths = [make.unsqueeze(f.operands[_LENGTHS], [1, 2, 3])] if _is_ragged(f) else []
    states = [
        _state(f, index, direction, layout, gates) for index in _STATES[: 1 + (kind == "LSTM")]
    ]
    each = len(_DEFAULTS[kind])
    names = _activations(f)[direction * each : (direction + 1) * each]
    batch, steps, *_ = shape_of(gates)
    element = ir.RankedTensorType(gates.type).element_type
    results = [tensor_type([batch, n, 1, hidden], element) for n in [steps] + [1] * len(states)]
    return make.onnx_many(
        RECURRENCE, [gates, *states, *lengths, *weights], results,
        cell=ir.StringAttr.get(name), states=int_attr(len(states)), backwards=int_attr(backwards),
        lengths=int_attr(len(lengths)),
        activations=ir.ArrayAttr.get([ir.StringAttr.get(name) for name in names]),
    )  # fmt: skip


def _is_ragged(f: ForwardOp) -> bool:
    """Return whether sequences may be shorter than the input."""
    known, steps = f.info.literal(_LENGTHS), f.info.shape(0)[int(f.info.attribute("layout", 0))]
    return f.has(_LENGTHS) and (known is None or bool((known != steps).any()))


def _slice_direction(f: ForwardOp, index: int, direction: int, shape: list[int]) -> ir.Value:
    """Return the slice of operand ``index`` for ``direction``, in ``shape``."""
    directions, x = f.info.shape(1)[0] or 1, f.operands[index]
    return f.make.reshape(
        x if directions == 1 else f.make.slice(x, 0, direction, direction + 1), shape
    )


def _with_biases(
    f: ForwardOp, direction: int, gates: ir.Value, r: ir.Value
) -> tuple[ir.Value, list[ir.Value], str]:
    """Return the gates with their biases, the weights, and the name of the cell.

    Input and recurrence each have a bias. They are added in different places only by a GRU that
    applies the reset gate after the product.
    """
    make, kind = f.make, f.info.name
    count, hidden = shape_of(gates)[-2:]
    linear = kind == "GRU" and bool(f.info.attribute("linear_before_reset", 0))
    both = None
    if f.has(_BIAS):
        both = _slice_direction(f, _BIAS, direction, [2, count or 1, hidden or 1])
    if linear:
        if both is None:
            zeros = make.expand(make.scalar(0.0, gates), [count or 1, hidden or 1])
            return gates, [r, zeros], "LinearGRU"
        own, added = (make.squeeze(x, [0]) for x in split(make, both, 0, (1, 1)))
        return make.add(gates, own), [r, added], "LinearGRU"
    if both is not None:
        gates = make.add(gates, make.reduce("ReduceSum", both, [0], keepdims=False))
    return gates, split(make, r, 0, (2, 1)) if kind == "GRU" else [r], kind


def _state(f: ForwardOp, index: int, direction: int, layout: int, gates: ir.Value) -> ir.Value:
    """Return the initial state, `b 1 1 h`, or zeros if the operand is omitted."""
    batch, _, _, hidden = (size or 1 for size in shape_of(gates))
    if not f.has(index):
        return f.make.expand(f.make.scalar(0.0, gates), [batch, 1, 1, hidden])
    directions, x = f.info.shape(1)[0] or 1, f.operands[index]
    x = x if directions == 1 else f.make.slice(x, 1 if layout else 0, direction, direction + 1)
    return f.make.reshape(x, [batch, 1, 1, hidden])
