"""Gradients of LSTM, GRU and RNN, unrolled over time.

The products with the input are one product for all steps, outside; so are the gradients of all
weights, after the last step: nothing of the size of a weight is made per step. A step keeps what
its activations give. All steps together follow one op, so that a search decides once for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensoropt.compiler.training.gradients.cells import ACTIVATIONS, CELLS, Cell, Step, split
from tensoropt.compiler.training.gradients.products import einsum
from tensoropt.compiler.training.gradients.registry import (
    Backward,
    Forward,
    Gradients,
    decomposition,
    forward_form,
    gradient,
)
from tensoropt.dialects.build import Build, int_attr, shape_of, tensor_type
from tensoropt.dialects.mlir import ir

__all__: list[str] = []

_RECURRENCE = "tensoropt.Recurrence"
"""All steps of a direction: (gates `b t g h`, states `b 1 1 h`, weights) -> (`b t 1 h`, states)."""

_TIME = 1
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_BIAS, _LENGTHS, _STATES, _PEEPHOLES = 3, 4, (5, 6), 7


@decomposition("LSTM", "GRU", "RNN")
def recurrent(f: Forward) -> Sequence[Any]:
    """Return the results of all steps and the last states, of each direction and joined."""
    _check(f)
    layout, make = int(f.info.attribute("layout", 0)), f.make
    x = f.operands[0] if layout else make.transpose(f.operands[0], [1, 0, 2])
    ways = [_direction(f, x, way, layout) for way in range(f.info.shape(1)[0] or 1)]
    y, *states = (make.concat([way[i] for way in ways], 2) for i in range(len(ways[0])))
    y = y if layout else make.transpose(y, [1, 2, 0, 3])
    last = [make.squeeze(state, [1]) for state in states]
    last = [state if layout else make.transpose(state, [1, 0, 2]) for state in last]
    found = [y, *last]
    return [found[i] if f.gives(i) else None for i in range(len(f.op.results))]


def _check(f: Forward) -> None:
    """Raise the error about what has no gradient here."""
    if f.has(_LENGTHS):
        raise f.refused("it has lengths of sequences, expected all to be as long as the input")
    if f.has(_PEEPHOLES):
        raise f.refused("it has peepholes, expected none")
    for name in ("clip", "input_forget"):
        if f.info.attribute(name):
            raise f.refused(f"it has the attribute {name}, expected none")
    unknown = [name for name in _activations(f) if name not in ACTIVATIONS]
    if unknown:
        raise f.refused(f"activation {unknown[0]}, expected one of {', '.join(ACTIVATIONS)}")


def _activations(f: Forward) -> tuple[str, ...]:
    """Return the names of all directions in turn."""
    ways = f.info.shape(1)[0] or 1
    held = f.info.attribute("activations")
    return tuple(name.capitalize() for name in held) if held else _DEFAULTS[f.info.name] * ways


def _direction(f: Forward, x: Any, way: int, layout: int) -> list[Any]:
    """Return the result `b t 1 h` and the last states `b 1 1 h` of one direction."""
    make, kind = f.make, f.info.name
    direction = str(f.info.attribute("direction", "forward"))
    backwards = direction == "reverse" or way == 1
    count, hidden = _GATES[kind], f.info.shape(2)[2] or 1
    w = _own(f, 1, way, [count, hidden, f.info.shape(1)[2] or 1])
    r = _own(f, 2, way, [count, hidden, 1, hidden])
    gates = einsum(make, [(x, "bti"), (w, "ghi")], "btgh")
    gates, weights, name = _with_biases(f, way, gates, r)
    states = [_state(f, index, way, layout, gates) for index in _STATES[: 1 + (kind == "LSTM")]]
    each = len(_DEFAULTS[kind])
    names = _activations(f)[way * each : (way + 1) * each]
    batch, steps, *_ = shape_of(gates)
    element = ir.RankedTensorType(gates.type).element_type
    results = [tensor_type([batch, n, 1, hidden], element) for n in [steps] + [1] * len(states)]
    return make.onnx_many(
        _RECURRENCE, [gates, *states, *weights], results,
        cell=ir.StringAttr.get(name), states=int_attr(len(states)), backwards=int_attr(backwards),
        activations=ir.ArrayAttr.get([ir.StringAttr.get(name) for name in names]),
    )  # fmt: skip


def _own(f: Forward, index: int, way: int, shape: list[int]) -> Any:
    """Return what of operand ``index`` is of direction ``way``, of ``shape``."""
    ways, x = f.info.shape(1)[0] or 1, f.operands[index]
    return f.make.reshape(x if ways == 1 else f.make.slice(x, 0, way, way + 1), shape)


def _with_biases(f: Forward, way: int, gates: Any, r: Any) -> tuple[Any, list[Any], str]:
    """Return the gates with their biases, the weights, and the name of the cell.

    Input and recurrence each have a bias; only a GRU that resets what it has multiplied adds them
    in different places.
    """
    make, kind = f.make, f.info.name
    count, hidden = shape_of(gates)[-2:]
    linear = kind == "GRU" and bool(f.info.attribute("linear_before_reset", 0))
    both = None
    if f.has(_BIAS):
        both = _own(f, _BIAS, way, [2, count or 1, hidden or 1])
    if linear:
        sides = [make.squeeze(x, [0]) for x in split(make, both, 0, (1, 1))] if f.has(_BIAS) else []
        zeros = None if sides else make.expand(make.scalar(0.0, gates), [count or 1, hidden or 1])
        gates = make.add(gates, sides[0]) if sides else gates
        return gates, [r, sides[1] if sides else zeros], "LinearGRU"
    if both is not None:
        gates = make.add(gates, make.reduce("ReduceSum", both, [0], keepdims=False))
    return gates, split(make, r, 0, (2, 1)) if kind == "GRU" else [r], kind


def _state(f: Forward, index: int, way: int, layout: int, gates: Any) -> Any:
    """Return a state before the first step, `b 1 1 h`: zeros where it is not there."""
    batch, _, _, hidden = (size or 1 for size in shape_of(gates))
    if not f.has(index):
        return f.make.expand(f.make.scalar(0.0, gates), [batch, 1, 1, hidden])
    ways, x = f.info.shape(1)[0] or 1, f.operands[index]
    x = x if ways == 1 else f.make.slice(x, 1 if layout else 0, way, way + 1)
    return f.make.reshape(x, [batch, 1, 1, hidden])


def _cell(make: Build, info: Any, weights: Sequence[Any]) -> Cell:
    return CELLS[info.attribute("cell")](make, weights, info.attribute("activations"))


def _order(info: Any) -> list[int]:
    """Return the steps in the order in which they run."""
    steps = list(range(info.shape(0)[_TIME]))
    return steps[::-1] if info.attribute("backwards") else steps


@forward_form(_RECURRENCE)
def _recurrence(f: Forward) -> Sequence[Any]:
    """Return all steps; each keeps what its cell says, under its number."""
    count = int(f.info.attribute("states"))
    gates, states, order = f.operands[0], f.operands[1 : 1 + count], _order(f.info)
    cell = _cell(f.make, f.info, f.operands[1 + count :])
    each = split(f.make, gates, _TIME, [1] * len(order))
    results: list[Any] = [None] * len(order)
    for step in order:
        states, kept = cell.forward(each[step], states)
        results[step] = states[0]
        f.kept.update({f"{step}.{i}": value for i, value in enumerate(kept)})
    return [f.make.concat(results, _TIME), *states]


@gradient(_RECURRENCE)
def _recurrence_gradient(b: Backward) -> Gradients:
    """Return backpropagation through time (Werbos 1990)."""
    return _Backpropagation(b).run()


class _Backpropagation:
    def __init__(self, b: Backward) -> None:
        self.b, self.make, self.order = b, b.make, _order(b.info)
        self.count = int(b.info.attribute("states"))
        self.initial = [b.operand(1 + i) for i in range(self.count)]
        self.weights = [b.operand(i) for i in range(1 + self.count, len(b.operands))]
        self.cell = _cell(self.make, b.info, self.weights)

    def run(self) -> Gradients:
        results = self._each(self.b.result())
        of_results = None if self.b.gradients[0] is None else self._each(self.b.gradients[0])
        after, steps = self._last(), {}
        for number in reversed(range(len(self.order))):
            step = self.order[number]
            if of_results is not None:
                after[0] = self._sum(after[0], of_results[step])
            before = self._before(number, results)
            held = [self.make.zeros(self.initial[0]) if x is None else x for x in after]
            steps[step] = self.cell.backward(self._kept(step), results[step], before, held)
            after = list(steps[step].states)
        gates = self._stack([steps[step].gates for step in range(len(steps))])
        every = [steps[step] for step in range(len(steps))]
        return [gates, *after, *(self._weight(i, every, gates) for i in range(len(self.weights)))]

    def _each(self, x: Any) -> list[Any]:
        return split(self.make, x, _TIME, [1] * len(self.order))

    def _last(self) -> list[Any]:
        """Return the gradients of the last states, ``None`` where there is none."""
        return [self.b.gradients[1 + i] for i in range(self.count)]

    def _sum(self, a: Any, b: Any) -> Any:
        return b if a is None else self.make.add(a, b)

    def _kept(self, step: int) -> list[Any]:
        count = len(self.b.held) // len(self.order)
        return [self.b.kept(f"{step}.{i}") for i in range(count)]

    def _before(self, number: int, results: list[Any]) -> list[Any]:
        """Return the states before the step that runs as ``number``."""
        if number == 0:
            return self.initial
        step = self.order[number - 1]
        return [results[step], *self._kept(step)[-1:]][: self.count]

    def _stack(self, parts: list[Any]) -> Any:
        return self.make.concat(parts, _TIME)

    def _weight(self, index: int, steps: Sequence[Step], gates: Any) -> Any:
        """Return the gradient of a weight: one product for all steps, or a sum for a bias."""
        if not self.b.wanted[1 + self.count + index]:
            return None
        pairs = [step.products[index] for step in steps]
        same = all(left == step.gates for (left, _), step in zip(pairs, steps, strict=True))
        left = gates if same else self._stack([left for left, _ in pairs])
        if pairs[0][1] is None:
            return self.make.reduce("ReduceSum", left, [0, 1], keepdims=False)
        right = self._stack([right for _, right in pairs])
        return einsum(self.make, [(left, "btgh"), (right, "btxk")], "ghxk")
