"""The cost of one complete assignment.

The tables charge every use of a tensor for its own reshard, and the memory of one op at a time.
Here each distinct reshard is charged once. Memory follows from the live ranges of all tensors, in
the order of the emitted graphs. :meth:`Evaluator.evaluate` charges each collective alone, as the
tables do. :meth:`Evaluator.emitted` charges fused collectives together, and only the time that
operators do not hide, as the graphs will run. ``walk/walk.cpp`` walks the program, and requests the
costs of equal nodes and tensors once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.cost.joining import CollectiveTime, joined_time_s, joining_time
from tensoropt.compiler.cost.overlap import overlap_effect
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.layout.sizes import end_of, mean_of
from tensoropt.compiler.program._walk import Images, Walk
from tensoropt.compiler.program.costs import NodeCosts, tensor_bytes
from tensoropt.compiler.program.fills import Mask
from tensoropt.compiler.program.graph import Node
from tensoropt.compiler.program.images import images_of
from tensoropt.compiler.program.program import overlapping, program_of, read
from tensoropt.compiler.reshard.resharder import TimedMove
from tensoropt.compiler.reshard.shared_tree import spread
from tensoropt.compiler.sharding.rule.op_info import TensorInfo
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.support.collectives import COLLECTIVES

if TYPE_CHECKING:
    from tensoropt.compiler.program._walk import _PathStep, _StrategyCost

__all__ = ["Cost", "Evaluator", "ProgramCost", "Record", "Running", "evaluator_of"]


@dataclass(frozen=True)
class Cost:
    """Predicted time of a step and memory of a device.

    ``hidden_s`` is the part of the communication that overlaps with operators.
    """

    compute_s: float
    communication_s: float
    static_bytes: int
    transient_bytes: int
    hidden_s: float = field(default=0.0, kw_only=True)

    @property
    def time_s(self) -> float:
        return self.compute_s + self.communication_s - self.hidden_s

    @property
    def memory_bytes(self) -> int:
        return self.static_bytes + self.transient_bytes


@dataclass(frozen=True)
class ProgramCost(Cost):
    """The cost of a whole program: for training, a step with all of its micro-batches.

    ``update_s`` is the part of its time that is spent once, for any number of micro-batches. If it
    ``is_limited``, operators might hide more of its communication with more memory.
    """

    update_s: float
    is_limited: bool = field(default=False, kw_only=True, compare=False)


@dataclass(frozen=True)
class Running:
    """Memory and collectives of a running process, without weights.

    ``arena_bytes`` is the part of ONNX Runtime's arena that transient tensors touch. ``sent_bytes``
    is the size of the largest tensor that a collective reads or makes, ``passed_bytes`` of all
    tensors that collectives make. ``moves`` is the number of collectives and slices.
    """

    arena_bytes: int
    sent_bytes: int
    passed_bytes: int
    moves: int


@dataclass(frozen=True)
class Record:
    """The events and live ranges of one walk.

    ``events`` has a row (node, value, source, target, moment) for each reshard of a value, for its
    first reader. After these it has a row for the node itself, with -1 as its value. A node is a
    position in ``costs.variables``. ``lives`` has a row (value, layout, first, last, bytes) for
    each transient tensor. Its layout is -1 between the steps of a reshard, its value -1 inside of
    bodies. Moments are numbered from 0, and one more follows the last step. ``groups`` has, for
    each moment of an event, the first of the collectives fused with it, else -1. ``places`` has its
    moment among the moments of lives; it is empty if these are the same. If collectives overlap
    with operators, ``begin_s`` has the start of the step of each moment, without overheads.
    ``ends`` then has the moment of lives at which its result is awaited. Else both are empty.
    """

    cost: ProgramCost
    events: npt.NDArray[np.int32]
    lives: npt.NDArray[np.int64]
    groups: Sequence[int]
    places: Sequence[int]
    begin_s: Sequence[float]
    ends: Sequence[int]

    def place(self, moment: int) -> int:
        """Return the moment among the lives for a moment of an event."""
        return self.places[moment] if self.places else moment

    def end(self, moment: int) -> int:
        """Return the moment among the lives at which the result of an event is awaited."""
        return self.ends[moment] if self.ends else self.place(moment)

    def alive_bytes(self, except_for: Sequence[int] = ()) -> npt.NDArray[np.int64]:
        """Return the live bytes at each moment, ``except_for`` some values."""
        lives = self.lives[~np.isin(self.lives[:, 0], except_for)]
        ends = int(self.events[:, 4].max(initial=0)), int(self.lives[:, 3].max(initial=0))
        change = np.zeros(max(ends) + 3, np.int64)
        np.add.at(change, lives[:, 2], lives[:, 4])
        np.subtract.at(change, lives[:, 3] + 1, lives[:, 4])
        return np.cumsum(change)


class Evaluator:
    """Computes costs of complete assignments on one mesh; shared results are computed once.

    Nodes with equal tables (repeated layers) and equal tensors share their results.
    """

    def __init__(self, costs: NodeCosts) -> None:
        self.costs = costs
        self.graph = costs.graph
        self.layouts: list[Layout] = []
        self._numbers: dict[Layout, int] = {}
        kinds: dict[int, int] = {}
        leaders = (costs.alike[index] for index in costs.variables)
        numbers = [kinds.setdefault(leader, len(kinds)) for leader in leaders]
        how = overlapping(costs.device)
        self._walk = Walk(program_of(self.graph), np.array(numbers, np.int32), how)
        self._runnings: dict[bytes, Running] = {}
        self._costing = _Costing(self)

    def evaluate(self, assignment: Sequence[int] | npt.NDArray[np.int32]) -> ProgramCost:
        """Return the cost of a program in which each collective is charged alone.

        ``assignment`` has the number of a strategy per node, in the order of ``costs.variables``.
        Linear in the operands of the program.
        """
        return self._run(assignment, joins=False)

    def emitted(self, assignment: Sequence[int] | npt.NDArray[np.int32]) -> ProgramCost:
        """Return the cost of the program as it will run, after fusion and overlap.

        It takes no more time and no more memory than :meth:`evaluate` returns.
        """
        return self._run(assignment, joins=True)

    def _run(
        self, assignment: Sequence[int] | npt.NDArray[np.int32], *, joins: bool
    ) -> ProgramCost:
        picked = np.ascontiguousarray(assignment, np.int32)
        return _cost(*self._walk.run(self._costing, picked, *self._overheads_s(), joins))

    def record(
        self,
        assignment: Sequence[int] | npt.NDArray[np.int32],
        *,
        joins: bool = True,
        overlaps: bool = True,
    ) -> Record:
        """Return the steps of :meth:`emitted`, or of :meth:`evaluate` without ``joins``.

        Unless it ``overlaps``, collectives are fused alone.
        """
        picked = np.ascontiguousarray(assignment, np.int32)
        cost, events, lives, groups, places, begin_s, ends = self._walk.record(
            self._costing, picked, *self._overheads_s(), joins, overlaps
        )
        return Record(_cost(*cost), events, lives, groups, places, begin_s, ends)

    def hidden(
        self, assignment: Sequence[int], graph_of: npt.NDArray[np.int32], graphs: int
    ) -> list[tuple[float, int]]:
        """Return the seconds that each of ``graphs`` of a program hides in one run.

        With them are the bytes by which that raises the peak of the graph. ``graph_of`` has the
        number of the graph of each node; graphs run in the order of their numbers. Linear in the
        operands of the program.
        """
        if not self.costs.device.overlaps:
            return [(0.0, 0)] * graphs
        picked = np.ascontiguousarray(assignment, np.int32)
        chosen = np.ascontiguousarray(graph_of[self.costs.variables], np.int32)
        return self._walk.hidden(self._costing, picked, chosen, graphs)

    def joined_s(self, movements: Sequence[tuple[str, tuple[int, ...], float]]) -> float:
        """Return the time of collectives (kind, axes, bytes) that are fused."""
        kind, axes, _ = movements[0]
        size = sum(own for _, _, own in movements)
        return joined_time_s(kind, axes, size, self.costs.mesh, self.costs.device)

    def running(self, assignment: Sequence[int] | npt.NDArray[np.int32]) -> Running:
        """Return the memory of a running process without its weights (decision 46).

        n log n in the operands of the program, the first time.
        """
        picked = np.ascontiguousarray(assignment, np.int32)
        key = picked.tobytes()
        if key not in self._runnings:
            found = self._walk.arena(self._costing, picked, self._images)
            self._runnings[key] = Running(*found)
        return self._runnings[key]

    @cached_property
    def _images(self) -> Images:
        return Images(*images_of(self.graph))

    def _overheads_s(self) -> tuple[float, float]:
        """Return the overhead of all graphs that a step runs, and of its update."""
        once_s = self.costs.device.step_overhead_s
        return self.graph.runs * once_s, once_s if self.graph.trains else 0.0

    def number(self, layout: Layout) -> int:
        """Return the number of a layout, its position in ``layouts``."""
        if layout not in self._numbers:
            self._numbers[layout] = len(self.layouts)
            self.layouts.append(layout)
        return self._numbers[layout]


def _cost(
    compute_s: float,
    communication_s: float,
    static_bytes: int,
    transient_bytes: int,
    update_s: float,
    hidden_s: float,
    is_limited: bool,
) -> ProgramCost:
    """Return the result of a walk as a ``ProgramCost``."""
    sizes = static_bytes, transient_bytes
    return ProgramCost(
        compute_s, communication_s, *sizes, update_s, hidden_s=hidden_s, is_limited=is_limited
    )


def evaluator_of(costs: NodeCosts) -> Evaluator:
    """Return the evaluator of ``costs``, which is made once."""
    if costs.evaluator is None:
        costs.evaluator = Evaluator(costs)
    assert isinstance(costs.evaluator, Evaluator)
    return costs.evaluator


_MOST_BYTES = 1 << 48
"""More bytes than any device has, and few enough to add up a program in 64 bits."""


class _Costing:
    """Supplies costs to the walk, once per class of equal nodes and values."""

    def __init__(self, owner: Evaluator) -> None:
        self.costs, self.graph = owner.costs, owner.graph
        self.number, self.layouts = owner.number, owner.layouts
        self.keys: dict[tuple[str, tuple[int, ...], str, str | None], int] = {}
        self.masks: dict[Mask, int] = {}

    def strategy(self, position: int, picked: int) -> _StrategyCost:
        """Return the costs of a strategy of the node at ``position`` of the variables.

        Raises `UserError` for a strategy that no device has memory for.
        """
        index = self.costs.variables[position]
        node, strategy = self.graph.nodes[index], self.costs.options[index][picked]
        kept = self.costs.static_bytes(node, strategy)
        needed = max(kept, self.costs.transient_bytes(node, strategy))
        if needed > _MOST_BYTES:
            raise UserError(
                f"{node.name}: needs {needed} bytes on one rank, expected at most 2^48 (256 TiB)"
            )
        wanted = [(value, strategy.operands[operand]) for operand, value in read(self.graph, node)]
        made = list(zip(node.results, strategy.results, strict=True))
        return (
            self.costs.op_time_s(node, strategy),
            self.costs.inner_time_s(node, strategy),
            kept,
            self.costs.inner_bytes(node, strategy),
            [self.number(layout) for _, layout in wanted],
            [self._bytes(v, x) if v in self.graph.storage.constants else 0 for v, x in wanted],
            [self.number(layout) for _, layout in made],
            [self._bytes(value, layout) for value, layout in made],
            *self._fills(node, strategy),
            self._time_apart(node, strategy),
        )

    def _fills(
        self, node: Node, strategy: Strategy
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return the place among the read values and the bytes of each fill, and all masks."""
        fills = self.costs.fills(node, strategy)
        place = {operand: number for number, (operand, _) in enumerate(read(self.graph, node))}
        masks = dict.fromkeys(fill.mask for fill in fills)
        numbers = [(self.masks.setdefault(m, len(self.masks)), m.bytes) for m in masks]
        return [(place[fill.operand], fill.bytes) for fill in fills], numbers

    def _time_apart(self, node: Node, strategy: Strategy) -> list[tuple[int, float]]:
        """Return places among the read values, each with the extra seconds if it is resharded."""
        place = {operand: number for number, (operand, _) in enumerate(read(self.graph, node))}
        return [(place[operand], s) for operand, s in self.costs.apart_s(node, strategy)]

    def _bytes(self, value: int, layout: Layout) -> int:
        return tensor_bytes(self.graph.values[value].info, layout, self.costs.mesh)

    def path(self, value: int, source: int, target: int) -> tuple[float, list[_PathStep]]:
        """Return the time of a reshard, and its steps."""
        info = self.graph.values[value].info
        if info is None:
            return 0.0, []
        ends = self.layouts[source], self.layouts[target]
        resharder, size = self.costs.resharder, (info.sizes, info.item_bytes)
        path = resharder.path(*size, *ends)
        return path.time_s, [self._step(info, one) for one in resharder.moves(*size, path)]

    def _step(self, info: TensorInfo, timed: TimedMove) -> _PathStep:
        step, kind, key = timed.step, timed.move.kind, -1
        if kind in COLLECTIVES and COLLECTIVES[kind].can_fuse:
            alike = (kind, step.axes, info.dtype, step.reduction)
            key = self.keys.setdefault(alike, len(self.keys))
        sent = mean_of(timed.read) * info.item_bytes
        after = self.number(step.dst), end_of(timed.move.made) * info.item_bytes
        return *after, key, sent, timed.time_s, overlap_effect(kind)

    def collective(self, key: int) -> CollectiveTime:
        """Return the time of the collectives of a key."""
        kind, axes, _, _ = list(self.keys)[key]
        return joining_time(kind, axes, self.costs.mesh, self.costs.device)

    def tree(self, value: int, source: int, targets: list[int]) -> list[tuple[int, int]]:
        """Return (layout, source layout) for each of ``targets`` and for intermediate layouts."""
        info = self.graph.values[value].info
        if info is None:
            return [(target, source) for target in targets]
        size, ends = (info.sizes, info.item_bytes), [self.layouts[target] for target in targets]
        tree = spread(self.costs.resharder, *size, self.layouts[source], ends)
        return [(self.number(target), self.number(held)) for target, held in tree.items()]
