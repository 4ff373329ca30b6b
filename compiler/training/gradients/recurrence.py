"""Recurrent networks unrolled over time, and backpropagation through them.

The products with the input are one product for all steps, computed outside; so are the gradients of
all weights, after the last step: no step produces a tensor of a weight's size. A step saves the
results of its activations. All steps follow one op, so the search decides for all of them in one
choice.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.training.gradients.cells import CELLS, Cell, CellStep, split
from tensoropt.compiler.training.gradients.products import einsum
from tensoropt.compiler.training.gradients.registry import (
    Backward,
    ForwardOp,
    Gradients,
    forward_form,
    gradient,
)
from tensoropt.dialects.build import Build
from tensoropt.dialects.mlir import ir

__all__ = ["RECURRENCE"]

RECURRENCE = "tensoropt.Recurrence"
"""An operator for all steps of a direction.

(gates `b t g h`, states `b 1 1 h`, [lengths `b 1 1 1`,] weights) -> (`b t 1 h`, states).
Attributes: the name of the ``cell``, its ``activations``, the numbers of ``states`` and
``lengths``, and whether it runs ``backwards``. A sequence that has ended preserves its state and
returns zeros; backwards, it begins at its end.
"""

_TIME = 1


class _Operands:
    """The operands of a recurrence by role."""

    def __init__(self, make: Build, info: OpInfo, operands: Sequence[ir.Value]) -> None:
        self.make, count = make, int(info.attribute("states"))
        self.first_weight = 1 + count + int(info.attribute("lengths"))
        self.gates, self.states = operands[0], list(operands[1 : 1 + count])
        self.lengths = operands[1 + count] if self.first_weight > 1 + count else None
        self.weights = operands[self.first_weight :]
        steps = list(range(info.shape(0)[_TIME] or 0))
        self.order = steps[::-1] if info.attribute("backwards") else steps
        activations = info.attribute("activations")
        self.cell: Cell = CELLS[info.attribute("cell")](make, self.weights, activations)

    def split_steps(self, x: ir.Value) -> list[ir.Value]:
        """Split ``x`` into its steps."""
        return split(self.make, x, _TIME, [1] * len(self.order))

    def running(self, step: int) -> ir.Value | None:
        """Return the mask of sequences that reach ``step``, bools `b 1 1 1`; ``None`` if all do."""
        if self.lengths is None:
            return None
        return self.make.compare("Less", self.make.scalar(step, self.lengths), self.lengths)

    def zero(self) -> ir.Value:
        """Return a scalar of the type of the gates, without reading them."""
        return self.make.scalar(0.0, self.gates)


@forward_form(RECURRENCE)
def _recurrence(f: ForwardOp) -> Sequence[ir.Value | None]:
    """Return all steps; each saves the values of its cell, and the states if sequences can end."""
    operands = _Operands(f.make, f.info, f.operands)
    gates, states = operands.split_steps(operands.gates), operands.states
    results: dict[int, ir.Value] = {}
    for step in operands.order:
        new, saved = operands.cell.forward(gates[step], states)
        running = operands.running(step)
        results[step] = new[0]
        if running is not None:
            results[step] = f.make.where(running, new[0], operands.zero())
            new = [f.make.where(running, a, b) for a, b in zip(new, states, strict=True)]
            saved = [*saved, *new]
        states = new
        f.saved.update({f"{step}.{i}": value for i, value in enumerate(saved)})
    return [f.make.concat([results[step] for step in sorted(results)], _TIME), *states]


@gradient(RECURRENCE)
def _recurrence_gradient(b: Backward) -> Gradients:
    """Return backpropagation through time (Werbos 1990)."""
    return _Backpropagation(b).run()


class _Backpropagation:
    def __init__(self, b: Backward) -> None:
        self.b, self.make = b, b.make
        operands = [b.operands[0], *(b.operand(i) for i in range(1, len(b.operands)))]
        self.operands = _Operands(b.make, b.info, operands)
        self.order, self.states = self.operands.order, self.operands.states

    def run(self) -> Gradients:
        results = self.operands.split_steps(self.b.result())
        dy, *last = map(self.b.gradient, range(len(self.b.results)))
        after: Gradients = last
        of_results = None if dy is None else self.operands.split_steps(dy)
        steps: dict[int, CellStep] = {}
        for number in reversed(range(len(self.order))):
            step = self.order[number]
            given = None if of_results is None else of_results[step]
            steps[step], after = self._step(number, results, given, after)
        every = [steps[step] for step in sorted(steps)]
        gates = self._stack([step.gates for step in every])
        lengths = [None] * (self.operands.first_weight - 1 - len(self.states))
        weights = (self._weight(i, every, gates) for i in range(len(self.operands.weights)))
        return [gates, *after, *lengths, *weights]

    def _step(
        self, number: int, results: list[ir.Value], dy: ir.Value | None, after: Gradients
    ) -> tuple[CellStep, list[ir.Value]]:
        """Return the gradients of the step that runs as ``number``, and of the states before it.

        ``after`` are the gradients of the states after it, ``dy`` the gradient of its result;
        ``None`` stands for no gradient.
        """
        step, running = self.order[number], self.operands.running(self.order[number])
        known = [self.make.zeros(self.states[0]) if x is None else x for x in after]
        given = [x if dy is None or i else self.make.add(x, dy) for i, x in enumerate(known)]
        if running is not None:
            given = [self.make.where(running, x, self.operands.zero()) for x in given]
        before, saved = self._states_before(number, results), self._cell_saved(step)
        made = self.operands.cell.backward(saved, results[step], before, given)
        if running is None:
            return made, made.states
        passed = (self.make.where(running, self.operands.zero(), x) for x in known)
        both = zip(made.states, passed, strict=True)
        return made, [self.make.add(own, past) for own, past in both]

    def _all_saved(self, step: int) -> list[ir.Value]:
        count = len(self.b.saved_values) // len(self.order)
        return [self.b.saved(f"{step}.{i}") for i in range(count)]

    def _cell_saved(self, step: int) -> list[ir.Value]:
        """Return the values that the cell saved."""
        saved = self._all_saved(step)
        return saved if self.operands.lengths is None else saved[: len(saved) - len(self.states)]

    def _states_before(self, number: int, results: list[ir.Value]) -> list[ir.Value]:
        """Return the states before the step that runs as ``number``."""
        if number == 0:
            return self.states
        step = self.order[number - 1]
        if self.operands.lengths is not None:
            return self._all_saved(step)[-len(self.states) :]
        return [results[step], *self._cell_saved(step)[-1:]][: len(self.states)]

    def _stack(self, parts: list[ir.Value]) -> ir.Value:
        return self.make.concat(parts, _TIME)

    def _weight(self, index: int, steps: Sequence[CellStep], gates: ir.Value) -> ir.Value | None:
        """Return the gradient of a weight: one product for all steps, or a sum for a bias."""
        if not self.b.wanted[self.operands.first_weight + index]:
            return None
        pairs = [step.products[index] for step in steps]
        same = all(left == step.gates for (left, _), step in zip(pairs, steps, strict=True))
        left = gates if same else self._stack([left for left, _ in pairs])
        rights = [right for _, right in pairs if right is not None]
        if not rights:
            return self.make.reduce("ReduceSum", left, [0, 1], keepdims=False)
        return einsum(self.make, [(left, "btgh"), (self._stack(rights), "btxk")], "ghxk")
