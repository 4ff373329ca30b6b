"""The attributes of a training step's ops in the IR: phase, number and leader.

- ``topt.phase``: one of `STEP_PARTS`.
- ``topt.id``: a unique number for every op, and for every argument of ``@main``.
- ``topt.follows``: the number of the leader, the op or argument that decides the strategy.
- ``topt.repeats``: the number of the op that this op recomputes, with the same strategy.
- ``topt.gradients``: on a leader, numbers in groups of four: (op, result) of a value of its
  forward part, then (op, result) of that value's gradient.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensoropt.dialects import onnx
from tensoropt.dialects.build import Build
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["Marker", "Marking", "follow", "number_of", "set_gradients"]


def number_of(op: ir.Operation) -> int:
    """Return the number of a marked op."""
    return keys.ID.of(op.attributes)


class Marker:
    """Assigns numbers and unique names to the ops of one step; ``made`` lists new ops in order."""

    def __init__(self) -> None:
        self._next = 0
        self._names: dict[str, int] = {}
        self.made: list[ir.Operation] = []

    def number(self) -> int:
        """Return an unused number."""
        self._next += 1
        return self._next - 1

    def name(self, wanted: str) -> str:
        """Return ``wanted``, with a numeric suffix if it is taken."""
        seen = self._names.get(wanted, 0)
        self._names[wanted] = seen + 1
        return self.name(f"{wanted}_{seen}") if seen else wanted

    def adopt(self, op: ir.Operation, phase: str) -> int:
        """Mark an existing op; return its number."""
        number = self.number()
        keys.ID.set(op.attributes, number)
        keys.PHASE.set(op.attributes, phase)
        name = onnx.node_name(op)
        if name is not None:
            self._names.setdefault(name, 1)
        return number

    def builder(self, name: str, opset: int, phase: str, follows: int | None = None) -> Marking:
        """Return a builder of ops of ``phase`` for the forward op called ``name``."""
        return Marking(ir.Location.unknown(), opset, {}, self, name, phase, follows)


@dataclass(frozen=True)
class Marking(Build):
    """Builds ops that are marked, and named after the op that they are built for.

    If ``follows`` is ``None``, every op decides its own strategy.
    """

    marker: Marker = dataclasses.field(default_factory=Marker)
    name: str = ""
    phase: str = "forward"
    follows: int | None = None

    def _create(
        self,
        op_type: str,
        operands: Sequence[ir.Value],
        results: Sequence[ir.Type],
        attributes: Mapping[str, ir.Attribute],
    ) -> ir.Operation:
        marks = {**keys.ID.item(self.marker.number()), **keys.PHASE.item(self.phase)}
        if self.follows is not None:
            marks |= keys.FOLLOWS.item(self.follows)
        name = self.marker.name(f"{self.name}.{op_type}" if self.name else op_type)
        given = {**marks, **attributes}
        op = Build(ir.Location.name(name), self.opset)._create(op_type, operands, results, given)
        self.marker.made.append(op)
        return op

    def following(self, leader: int | None) -> Marking:
        """Return a copy of this builder for ops that follow ``leader``."""
        return dataclasses.replace(self, follows=leader)


def follow(op: ir.Operation, leader: ir.Operation) -> None:
    """Make ``op`` follow the strategy of ``leader``."""
    keys.FOLLOWS.set(op.attributes, number_of(leader))


def set_gradients(op: ir.Operation, fours: Sequence[int]) -> None:
    """Set the attribute that maps values to their gradients, in groups of four numbers."""
    keys.GRADIENTS.set(op.attributes, list(fours))
