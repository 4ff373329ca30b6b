"""Forward and backward steps of recurrent cells, in the notation of the ONNX standard.

Tensors are `b t g h`: batch, one time step, gates, hidden units. A cell takes the input's
contribution to its gates; its weights are `g h 1 k` (k: hidden units of the previous step). The
weight gradients are summed over time in one product later: :class:`CellStep` contains its factors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensoropt.compiler.training.gradients.products import einsum
from tensoropt.dialects.build import Build, element_type, int_attr, shape_of, tensor_type
from tensoropt.dialects.mlir import ir

__all__ = ["ACTIVATIONS", "CELLS", "Cell", "CellStep", "split"]

_TIME, _GATES = 1, 2


def split(make: Build, x: ir.Value, dim: int, sizes: Sequence[int]) -> list[ir.Value]:
    """Split ``x`` into parts of ``sizes`` along ``dim``."""
    shapes = [[n if d == dim else size for d, size in enumerate(shape_of(x))] for n in sizes]
    kinds = [tensor_type(shape, element_type(x)) for shape in shapes]
    if len(set(sizes)) == 1:
        count = int_attr(len(sizes))
        return make.onnx_many("Split", [x], kinds, axis=int_attr(dim), num_outputs=count)
    return make.onnx_many("Split", [x, make.ints(sizes)], kinds, axis=int_attr(dim))


def _sigmoid(make: Build, y: ir.Value, dy: ir.Value) -> ir.Value:
    part = make.mul(dy, y)
    return make.sub(part, make.mul(part, y))


def _tanh(make: Build, y: ir.Value, dy: ir.Value) -> ir.Value:
    return make.sub(dy, make.mul(make.mul(dy, y), y))


def _relu(make: Build, y: ir.Value, dy: ir.Value) -> ir.Value:
    zero = make.scalar(0.0, dy)
    return make.where(make.compare("Greater", y, zero), dy, zero)


ACTIVATIONS: dict[str, Callable[[Build, ir.Value, ir.Value], ir.Value]] = {
    "Sigmoid": _sigmoid,
    "Tanh": _tanh,
    "Relu": _relu,
}
"""Functions by name that map a result and its gradient to the gradient of the operand."""


@dataclass
class CellStep:
    """The gradients from one backward step.

    ``gates`` is the gradient of the input's contribution to the gates, ``states`` the gradients of
    the previous states. ``products`` is (gradient of the product, multiplied value) for each
    weight; the latter is ``None`` for a bias, which has a sum as gradient.
    """

    gates: ir.Value
    states: list[ir.Value]
    products: Sequence[tuple[ir.Value, ir.Value | None]]


@dataclass(frozen=True)
class Cell:
    """A cell with its ``weights`` (and biases) and the names of its ``activations``."""

    make: Build
    weights: Sequence[ir.Value]
    activations: Sequence[str]

    def forward(
        self, gates: ir.Value, states: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """Return the new states, the result first, and the values saved for the backward step."""
        raise NotImplementedError

    def backward(
        self, saved: list[ir.Value], h: ir.Value, before: list[ir.Value], after: list[ir.Value]
    ) -> CellStep:
        """Return the gradients of the step from ``after``, the gradients of its new states.

        ``h`` is the result of the step, ``before`` the previous states.
        """
        raise NotImplementedError

    def activate(self, number: int, x: ir.Value) -> ir.Value:
        """Return activation ``number`` of ``x``."""
        return self.make.unary(self.activations[number], x)

    def activation_gradient(self, number: int, y: ir.Value, dy: ir.Value) -> ir.Value:
        """Return the gradient of the operand of activation ``number``, which returned ``y``."""
        return ACTIVATIONS[self.activations[number]](self.make, y, dy)

    def product(self, h: ir.Value, weight: int) -> ir.Value:
        """Return the contribution of a state to the gates of a weight."""
        return einsum(self.make, [(h, "btxk"), (self.weights[weight], "ghxk")], "btgh")

    def state_gradient(self, gates: ir.Value, weight: int) -> ir.Value:
        """Return the gradient of the state that was multiplied by a weight."""
        return einsum(self.make, [(gates, "btgh"), (self.weights[weight], "ghxk")], "btxk")

    def split_gates(self, x: ir.Value, *sizes: int) -> list[ir.Value]:
        """Split the gates of ``x`` into groups of ``sizes``."""
        return split(self.make, x, _GATES, sizes)

    def join_gates(self, *parts: ir.Value) -> ir.Value:
        """Join gates in one tensor."""
        return self.make.concat(list(parts), _GATES)


class _Plain(Cell):
    """H' = f(G + H R)."""

    def forward(
        self, gates: ir.Value, states: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        return [self.activate(0, self.make.add(gates, self.product(states[0], 0)))], []

    def backward(
        self, saved: list[ir.Value], h: ir.Value, before: list[ir.Value], after: list[ir.Value]
    ) -> CellStep:
        gates = self.activation_gradient(0, h, after[0])
        return CellStep(gates, [self.state_gradient(gates, 0)], [(gates, before[0])])


class _Lstm(Cell):
    """Hochreiter and Schmidhuber (1997), with forget gates; gates i, o, f, c."""

    def forward(
        self, gates: ir.Value, states: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        make, (h, c) = self.make, states
        three, own = self.split_gates(make.add(gates, self.product(h, 0)), 3, 1)
        three, own = self.activate(0, three), self.activate(1, own)
        i, o, f = self.split_gates(three, 1, 1, 1)
        c = make.add(make.mul(f, c), make.mul(i, own))
        return [make.mul(o, self.activate(2, c)), c], [three, own, c]

    def backward(
        self, saved: list[ir.Value], h: ir.Value, before: list[ir.Value], after: list[ir.Value]
    ) -> CellStep:
        make, (three, own, c), (dh, dc) = self.make, saved, after
        i, o, f = self.split_gates(three, 1, 1, 1)
        squashed = self.activate(2, c)
        dc = make.add(dc, self.activation_gradient(2, squashed, make.mul(dh, o)))
        of_gates = self.join_gates(
            make.mul(dc, own), make.mul(dh, squashed), make.mul(dc, before[1])
        )
        gates = self.join_gates(
            self.activation_gradient(0, three, of_gates),
            self.activation_gradient(1, own, make.mul(dc, i)),
        )
        return CellStep(
            gates, [self.state_gradient(gates, 0), make.mul(dc, f)], [(gates, before[0])]
        )


class _PeepholeLstm(Cell):
    """Gers and Schmidhuber (2000): gates read the cell state too, the output gate the new one.

    The weights are the recurrent weight, then the peepholes of i, o and f, one number per unit.
    """

    def forward(
        self, gates: ir.Value, states: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        make, (h, c), (_, at_i, at_o, at_f) = self.make, states, self.weights
        i, o, f, own = self.split_gates(make.add(gates, self.product(h, 0)), 1, 1, 1, 1)
        i = self.activate(0, make.add(i, make.mul(c, at_i)))
        f = self.activate(0, make.add(f, make.mul(c, at_f)))
        own = self.activate(1, own)
        c = make.add(make.mul(f, c), make.mul(i, own))
        o = self.activate(0, make.add(o, make.mul(c, at_o)))
        return [make.mul(o, self.activate(2, c)), c], [i, o, f, own, c]

    def backward(
        self, saved: list[ir.Value], h: ir.Value, before: list[ir.Value], after: list[ir.Value]
    ) -> CellStep:
        make, (i, o, f, own, c), (dh, dc) = self.make, saved, after
        (old_h, old_c), (_, at_i, at_o, at_f) = before, self.weights
        squashed = self.activate(2, c)
        of_o = self.activation_gradient(0, o, make.mul(dh, squashed))
        dc = make.add(dc, self.activation_gradient(2, squashed, make.mul(dh, o)))
        dc = make.add(dc, make.mul(of_o, at_o))
        of_i = self.activation_gradient(0, i, make.mul(dc, own))
        of_f = self.activation_gradient(0, f, make.mul(dc, old_c))
        gates = self.join_gates(of_i, of_o, of_f, self.activation_gradient(1, own, make.mul(dc, i)))
        seen = make.add(make.mul(of_i, at_i), make.mul(of_f, at_f))
        states = [self.state_gradient(gates, 0), make.add(make.mul(dc, f), seen)]
        sums = [make.mul(of_i, old_c), make.mul(of_o, c), make.mul(of_f, old_c)]
        return CellStep(gates, states, [(gates, old_h), *((x, None) for x in sums)])


class _Gru(Cell):
    """Cho et al. (arXiv 1406.1078); gates z, r and h, with a separate weight for h."""

    def forward(
        self, gates: ir.Value, states: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        make, [h] = self.make, states
        two, own = self.split_gates(gates, 2, 1)
        two = self.activate(0, make.add(two, self.product(h, 0)))
        z, r = self.split_gates(two, 1, 1)
        own = self.activate(1, make.add(own, self.product(make.mul(r, h), 1)))
        return [make.add(own, make.mul(z, make.sub(h, own)))], [two, own]

    def backward(
        self, saved: list[ir.Value], h: ir.Value, before: list[ir.Value], after: list[ir.Value]
    ) -> CellStep:
        make, (two, own), [old], [dh] = self.make, saved, before, after
        z, r = self.split_gates(two, 1, 1)
        carried = make.mul(dh, z)
        of_own = self.activation_gradient(1, own, make.sub(dh, carried))
        of_reset = self.state_gradient(of_own, 1)
        both = self.join_gates(make.mul(dh, make.sub(old, own)), make.mul(of_reset, old))
        of_two = self.activation_gradient(0, two, both)
        dold = make.add(make.add(carried, make.mul(of_reset, r)), self.state_gradient(of_two, 0))
        products = [(of_two, old), (of_own, make.mul(r, old))]
        return CellStep(self.join_gates(of_two, of_own), [dold], products)


class _LinearGru(Cell):
    """The GRU that applies the reset gate after the product, to which a bias is added first."""

    def forward(
        self, gates: ir.Value, states: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        make, [h] = self.make, states
        two, own = self.split_gates(gates, 2, 1)
        added = make.add(self.product(h, 0), self.weights[1])
        of_two, of_own = self.split_gates(added, 2, 1)
        two = self.activate(0, make.add(two, of_two))
        z, r = self.split_gates(two, 1, 1)
        own = self.activate(1, make.add(own, make.mul(r, of_own)))
        return [make.add(own, make.mul(z, make.sub(h, own)))], [two, own, of_own]

    def backward(
        self, saved: list[ir.Value], h: ir.Value, before: list[ir.Value], after: list[ir.Value]
    ) -> CellStep:
        make, (two, own, added), [old], [dh] = self.make, saved, before, after
        z, r = self.split_gates(two, 1, 1)
        carried = make.mul(dh, z)
        of_own = self.activation_gradient(1, own, make.sub(dh, carried))
        both = self.join_gates(make.mul(dh, make.sub(old, own)), make.mul(of_own, added))
        of_two = self.activation_gradient(0, two, both)
        of_product = self.join_gates(of_two, make.mul(of_own, r))
        dold = make.add(carried, self.state_gradient(of_product, 0))
        products = [(of_product, old), (of_product, None)]
        return CellStep(self.join_gates(of_two, of_own), [dold], products)


CELLS: dict[str, type[Cell]] = {
    "RNN": _Plain,
    "LSTM": _Lstm,
    "PeepholeLSTM": _PeepholeLstm,
    "GRU": _Gru,
    "LinearGRU": _LinearGru,
}
