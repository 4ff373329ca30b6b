"""Inputs of the predicted time of a plan, from which any description can predict it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tensoropt.compiler.cost.bodies import bodies_time_s
from tensoropt.compiler.cost.communication import (
    collective_time_s,
    copy_line,
    packed_bytes_per_byte,
)
from tensoropt.compiler.cost.compute import FREE, Work, known_operator, work_of, work_time_s
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.cost.measurements import Context
from tensoropt.compiler.program.costs import context
from tensoropt.compiler.program.evaluate import Evaluator
from tensoropt.compiler.program.timeline import Step, timeline_of
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["PlannedOp", "PlannedSend", "PlannedStep", "planned_step"]


@dataclass(frozen=True)
class PlannedOp:
    """The work of equal ops of a rank, which have the same producers."""

    work: Work
    context: Context


@dataclass(frozen=True)
class PlannedSend:
    """Equal collectives: the ``ranks`` of a group, and the ``bytes`` of each rank's input."""

    kind: str
    ranks: int
    bytes: int


@dataclass(frozen=True)
class PlannedStep:
    """The work of one of ``ranks`` in a step: graph runs, ops and collectives with their counts,
    and local copies with the bytes that they read and write.

    ``bodies_s`` is the predicted time of the bodies of control flow, in seconds.
    """

    ranks: int
    graphs: int
    ops: Sequence[tuple[PlannedOp, int]]
    sends: Sequence[tuple[PlannedSend, int]]
    copies: int = 0
    copied_bytes: float = 0.0
    bodies_s: float = 0.0

    def time_s(self, device: Device) -> float:
        """Return the time of the step on ranks of one machine, as a search predicts it."""
        ops_s = self.ops_s(device) * (1.0 + device.waits(self.ranks).operators)
        copy = copy_line(1.0, device)
        copies_s = self.copies * copy.fixed_s + self.copied_bytes * copy.s_per_byte
        graphs_s = self.graphs * device.step_overhead_s
        return graphs_s + ops_s + self.sends_s(device) + copies_s

    def ops_s(self, device: Device) -> float:
        """Return the time of the operators, without waiting for other ranks."""
        return sum(count * _op_time_s(op, device) for op, count in self.ops) + self.bodies_s

    def sends_s(self, device: Device) -> float:
        """Return the time of the collectives."""
        return sum(
            count * collective_time_s(send.kind, send.bytes, (0,), Mesh((send.ranks,)), device)
            for send, count in self.sends
        )


def _op_time_s(op: PlannedOp, device: Device) -> float:
    known = known_operator(op.work.operator, op.work.dtype, device)
    is_fused = known is not None and op.context in known.fused
    return 0.0 if is_fused else work_time_s(op.work, device)


def planned_step(point: FrontierPoint) -> PlannedStep:
    """Return the work of a point's plan in a step, over all micro-batches.

    Linear in the operands of the program.
    """
    return _Counting(point).step()


@dataclass
class _Counting:
    point: FrontierPoint
    ops: Counter[PlannedOp] = field(default_factory=Counter)
    sends: Counter[PlannedSend] = field(default_factory=Counter)
    copies: int = 0
    copied_bytes: float = 0.0
    bodies_s: float = 0.0

    def step(self) -> PlannedStep:
        self.tables, self.mesh = self.point.tables, Mesh(self.point.mesh)
        steps = timeline_of(Evaluator(self.tables), self.point.assignment).steps
        for step in steps:
            if step.group is None:
                self._add(step)
        for group in sorted({step.group for step in steps if step.group is not None}):
            self._add_fused([step for step in steps if step.group == group])
        counts = self.copies, self.copied_bytes, self.bodies_s
        ops, sends = tuple(self.ops.items()), tuple(self.sends.items())
        return PlannedStep(self.mesh.size, self.tables.graph.runs, ops, sends, *counts)

    def _add(self, step: Step) -> None:
        if step.node is None:  # the overhead of a graph
            return
        times = self._times(step.node)
        moved = step.movement
        if moved is None:
            self._op(step.node, times)
        elif step.kind == "collective":
            kind, ranks = moved.kind, self.mesh.extent(moved.axes)
            self.sends[PlannedSend(kind, ranks, moved.bytes)] += times
        else:
            parts = self.mesh.extent(moved.axes) if moved.kind == "all_slice" else 1
            self.copies += times
            self.copied_bytes += times * 2.0 / parts * moved.bytes

    def _add_fused(self, steps: Sequence[Step]) -> None:
        """Add collectives that are fused, and the copies that pack them."""
        moved = [step.movement for step in steps if step.movement is not None]
        first, size = moved[0], sum(movement.bytes for movement in moved)
        assert steps[0].node is not None
        times = self._times(steps[0].node)
        kind, ranks = first.kind, self.mesh.extent(first.axes)
        self.sends[PlannedSend(kind, ranks, size)] += times
        self.copied_bytes += times * packed_bytes_per_byte(kind, ranks) * size

    def _times(self, index: int) -> int:
        graph = self.tables.graph
        return graph.times(graph.nodes[index])

    def _op(self, index: int, times: int) -> None:
        graph, strategies = self.tables.graph, self.point.strategies
        node = graph.op(index)
        if node.info.name in FREE:
            return
        work = work_of(node.info, node.rule, strategies[index], self.mesh)
        self.ops[PlannedOp(work, context(graph, node))] += times
        if not self.tables.is_fused(node):
            self.bodies_s += times * bodies_time_s(node.info, self.tables.device)
