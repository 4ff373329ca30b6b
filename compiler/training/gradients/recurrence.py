"""The steps of a recurrent network and backpropagation through them, unrolled over time.

The products with the input are one product for all steps, outside; so are the gradients of all
weights, after the last step: nothing of the size of a weight is made per step. A step keeps what
its activations give. All steps together follow one op, so that a search decides once for them.
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
"""All steps of a direction: (gates `b t g h`, states `b 1 1 h`, [lengths `b 1 1 1`,] weights) ->
(`b t 1 h`, states). Attributes: the name of the ``cell``, its ``activations``, how many ``states``
and ``lengths`` there are, and whether it runs ``backwards``.

A sequence that has ended keeps its state and gives zeros; backwards it begins at its end.
"""

_TIME = 1


class _Operands:
    """The operands of a recurrence by what they are."""

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

    def each(self, x: ir.Value) -> list[ir.Value]:
        """Return the steps of ``x``."""
        return split(self.make, x, _TIME, [1] * len(self.order))

    def runs(self, step: int) -> ir.Value | None:
        """Return which sequences reach ``step``, bools `b 1 1 1`; ``None`` where all do."""
        if self.lengths is None:
            return None
        return self.make.compare("Less", self.make.scalar(step, self.lengths), self.lengths)

    def zero(self) -> ir.Value:
        """Return a scalar of the type of the gates, which are not read."""
        return self.make.scalar(0.0, self.gates)


@forward_form(RECURRENCE)
def _recurrence(f: ForwardOp) -> Sequence[ir.Value | None]:
    """Return all steps; each keeps what its cell says, and the states of ended sequences."""
    operands = _Operands(f.make, f.info, f.operands)
    each, states, results = operands.each(operands.gates), operands.states, dict[int, ir.Value]()
    for step in operands.order:
        new, kept = operands.cell.forward(each[step], states)
        runs = operands.runs(step)
        results[step] = new[0]
        if runs is not None:
            results[step] = f.make.where(runs, new[0], operands.zero())
            new = [f.make.where(runs, a, b) for a, b in zip(new, states, strict=True)]
            kept = [*kept, *new]
        states = new
        f.kept.update({f"{step}.{i}": value for i, value in enumerate(kept)})
    return [f.make.concat([results[step] for step in sorted(results)], _TIME), *states]


@gradient(RECURRENCE)
def _recurrence_gradient(b: Backward) -> Gradients:
    """Return backpropagation through time (Werbos 1990)."""
    return _Backpropagation(b).run()


class _Backpropagation:
    def __init__(self, b: Backward) -> None:
        self.b, self.make = b, b.make
        operands = [b.operands[0], *(b.operand(i) for i in range(1, len(b.operands)))]
        self.held = _Operands(b.make, b.info, operands)
        self.order, self.states = self.held.order, self.held.states

    def run(self) -> Gradients:
        results = self.held.each(self.b.result())
        dy, *last = map(self.b.gradient, range(len(self.b.results)))
        after: Gradients = last
        of_results = None if dy is None else self.held.each(dy)
        steps: dict[int, CellStep] = {}
        for number in reversed(range(len(self.order))):
            step = self.order[number]
            given = None if of_results is None else of_results[step]
            steps[step], after = self._step(number, results, given, after)
        every = [steps[step] for step in sorted(steps)]
        gates = self._stack([step.gates for step in every])
        lengths = [None] * (self.held.first_weight - 1 - len(self.states))
        weights = (self._weight(i, every, gates) for i in range(len(self.held.weights)))
        return [gates, *after, *lengths, *weights]

    def _step(
        self, number: int, results: list[ir.Value], dy: ir.Value | None, after: Gradients
    ) -> tuple[CellStep, list[ir.Value]]:
        """Return what the step that runs as ``number`` gives, and the gradients of the states
        before it, from those ``after`` it and that of its result (``None`` for nothing)."""
        step, runs = self.order[number], self.held.runs(self.order[number])
        known = [self.make.zeros(self.states[0]) if x is None else x for x in after]
        given = [x if dy is None or i else self.make.add(x, dy) for i, x in enumerate(known)]
        if runs is not None:
            given = [self.make.where(runs, x, self.held.zero()) for x in given]
        before, kept = self._before(number, results), self._kept(step)
        made = self.held.cell.backward(kept, results[step], before, given)
        if runs is None:
            return made, made.states
        passed = (self.make.where(runs, self.held.zero(), x) for x in known)
        both = zip(made.states, passed, strict=True)
        return made, [self.make.add(own, past) for own, past in both]

    def _all_kept(self, step: int) -> list[ir.Value]:
        count = len(self.b.held) // len(self.order)
        return [self.b.kept(f"{step}.{i}") for i in range(count)]

    def _kept(self, step: int) -> list[ir.Value]:
        """Return what the cell kept."""
        kept = self._all_kept(step)
        return kept if self.held.lengths is None else kept[: len(kept) - len(self.states)]

    def _before(self, number: int, results: list[ir.Value]) -> list[ir.Value]:
        """Return the states before the step that runs as ``number``."""
        if number == 0:
            return self.states
        step = self.order[number - 1]
        if self.held.lengths is not None:
            return self._all_kept(step)[-len(self.states) :]
        return [results[step], *self._kept(step)[-1:]][: len(self.states)]

    def _stack(self, parts: list[ir.Value]) -> ir.Value:
        return self.make.concat(parts, _TIME)

    def _weight(self, index: int, steps: Sequence[CellStep], gates: ir.Value) -> ir.Value | None:
        """Return the gradient of a weight: one product for all steps, or a sum for what is
        added."""
        if not self.b.wanted[self.held.first_weight + index]:
            return None
        pairs = [step.products[index] for step in steps]
        same = all(left == step.gates for (left, _), step in zip(pairs, steps, strict=True))
        left = gates if same else self._stack([left for left, _ in pairs])
        rights = [right for _, right in pairs if right is not None]
        if not rights:
            return self.make.reduce("ReduceSum", left, [0, 1], keepdims=False)
        return einsum(self.make, [(left, "btgh"), (self._stack(rights), "btxk")], "ghxk")
