"""The cost of one complete assignment.

The search charges every use of a tensor for its own reshard and knows the memory of one step at a
time. Here each distinct reshard is paid once and memory follows from the lifetimes of all tensors
over the program, in the order that the emitted graphs keep. Collectives that are sent as one are
paid as one by :meth:`Evaluator.emitted`, and what of them operators hide is not paid, as the graphs
will have it; each alone by :meth:`Evaluator.evaluate`, as the tables of the search have it. The
walk over the program is the engine's (``engine/walk.cpp``); it asks for what nodes and tensors
alike cost, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.cost.communication import copy_line
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.cost.joining import CollectiveTime, joined_time_s, joining_time
from tensoropt.compiler.cost.overlap import Overlap, overlap_effect
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.layout.sizes import end_of, mean_of
from tensoropt.compiler.reshard.resharder import TimedMove
from tensoropt.compiler.reshard.shared_tree import spread
from tensoropt.compiler.search._engine import Images, Overlapping, Walk
from tensoropt.compiler.search.problem.fills import Mask
from tensoropt.compiler.search.problem.graph import Node
from tensoropt.compiler.search.problem.images import images_of
from tensoropt.compiler.search.problem.program import program_of, read
from tensoropt.compiler.search.problem.tables import MeshTables, tensor_bytes
from tensoropt.compiler.sharding.rule.op_info import TensorInfo
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.support.collectives import COLLECTIVES

if TYPE_CHECKING:
    from tensoropt.compiler.search._engine import _PathStep, _StrategyCost

__all__ = ["Cost", "Evaluator", "ProgramCost", "Record", "Running", "evaluator_of", "overlapping"]


@dataclass(frozen=True)
class Cost:
    """Predicted time of a step and memory of a device.

    ``hidden_s`` is the part of the communication that goes on while operators run.
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
    """What a whole program costs, a training step with all of its micro-batches.

    ``update_s`` is the part of its time that is spent once, however many micro-batches there are.
    """

    update_s: float


@dataclass(frozen=True)
class Running:
    """What tensors that come and go touch of ONNX Runtime's arena, the size of the largest tensor
    that a collective reads or makes, that of all that they make, and how many collectives and
    slices there are."""

    arena_bytes: int
    sent_bytes: int
    passed_bytes: int
    moves: int


@dataclass(frozen=True)
class Record:
    """What one walk did.

    ``events`` has a row (node, value, source, target, moment) for each move of a value between two
    layouts for the node that reads it first, and for each node after them, with -1 as its value;
    a node is a position in ``tables.variables``. ``lives`` has a row (value, layout, first, last,
    bytes) for each tensor that comes and goes: no layout (-1) between the steps of a move, no value
    inside of bodies. Moments are numbered from 0, and one more follows the last step. ``groups``
    has for each moment of an event the first of the collectives sent as one, -1 for others,
    and ``places`` where it is among the moments of lives; it is empty where these are the same.
    Where collectives run beside operators, ``begin_s`` has when the step of a moment begins,
    overheads left out, and ``ends`` the moment among those of lives at which it is waited for;
    else they are empty.
    """

    cost: ProgramCost
    events: npt.NDArray[np.int32]
    lives: npt.NDArray[np.int64]
    groups: Sequence[int]
    places: Sequence[int]
    begin_s: Sequence[float]
    ends: Sequence[int]

    def place(self, moment: int) -> int:
        """Return the moment among those of lives at which that of an event is."""
        return self.places[moment] if self.places else moment

    def end(self, moment: int) -> int:
        """Return the moment among those of lives at which what an event begins is waited for."""
        return self.ends[moment] if self.ends else self.place(moment)

    def alive_bytes(self) -> npt.NDArray[np.int64]:
        """Return the bytes alive at each moment."""
        ends = int(self.events[:, 4].max(initial=0)), int(self.lives[:, 3].max(initial=0))
        change = np.zeros(max(ends) + 3, np.int64)
        np.add.at(change, self.lives[:, 2], self.lives[:, 4])
        np.subtract.at(change, self.lives[:, 3] + 1, self.lives[:, 4])
        return np.cumsum(change)


class Evaluator:
    """Costs complete assignments on one mesh; what they share is computed once.

    So is what nodes of equal tables (repeated layers) and tensors alike have in common.
    """

    def __init__(self, tables: MeshTables) -> None:
        self.tables = tables
        self.graph = tables.graph
        self.layouts: list[Layout] = []
        self._numbers: dict[Layout, int] = {}
        kinds: dict[int, int] = {}
        leaders = (tables.alike[index] for index in tables.variables)
        numbers = [kinds.setdefault(leader, len(kinds)) for leader in leaders]
        how = overlapping(tables.device)
        self._walk = Walk(program_of(self.graph), np.array(numbers, np.int32), how)
        self._runnings: dict[bytes, Running] = {}
        self._costing = _Costing(self)

    def evaluate(self, assignment: Sequence[int] | npt.NDArray[np.int32]) -> ProgramCost:
        """Return the cost of giving each choosing node the strategy of that number.

        ``assignment`` is in the order of ``tables.variables``. Each collective is paid alone.
        Linear in the operands of the program.
        """
        return self._run(assignment, joins=False)

    def emitted(self, assignment: Sequence[int] | npt.NDArray[np.int32]) -> ProgramCost:
        """Return what :meth:`evaluate` does for the program as it will run: it takes no longer, and
        no more memory."""
        return self._run(assignment, joins=True)

    def _run(
        self, assignment: Sequence[int] | npt.NDArray[np.int32], *, joins: bool
    ) -> ProgramCost:
        picked = np.ascontiguousarray(assignment, np.int32)
        return _cost(*self._walk.run(self._costing, picked, *self._overheads_s(), joins))

    def record(
        self, assignment: Sequence[int] | npt.NDArray[np.int32], *, joins: bool = True
    ) -> Record:
        """Return what :meth:`emitted` does step by step, or :meth:`evaluate` without ``joins``."""
        picked = np.ascontiguousarray(assignment, np.int32)
        cost, events, lives, groups, places, begin_s, ends = self._walk.record(
            self._costing, picked, *self._overheads_s(), joins
        )
        return Record(_cost(*cost), events, lives, groups, places, begin_s, ends)

    def joined_s(self, movements: Sequence[tuple[str, tuple[int, ...], float]]) -> float:
        """Return the time of collectives (kind, axes, bytes) alike that are sent as one."""
        kind, axes, _ = movements[0]
        size = sum(own for _, _, own in movements)
        return joined_time_s(kind, axes, size, self.tables.mesh, self.tables.device)

    def running(self, assignment: Sequence[int] | npt.NDArray[np.int32]) -> Running:
        """Return what a process takes room for beside weights while it runs (decision 46).

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
        """Return the overhead of all graphs that a step runs, and that of its update."""
        once_s = self.tables.device.step_overhead_s
        return self.graph.runs * once_s, once_s if self.graph.trains else 0.0

    def number(self, layout: Layout) -> int:
        """Return the number of a layout, its position in ``layouts``."""
        if layout not in self._numbers:
            self._numbers[layout] = len(self.layouts)
            self.layouts.append(layout)
        return self._numbers[layout]

    def is_update(self, index: int) -> bool:
        """Say whether a node belongs to the update of a training step."""
        return self.graph.updates(self.graph.nodes[index])


def _cost(
    compute_s: float,
    communication_s: float,
    static_bytes: int,
    transient_bytes: int,
    update_s: float,
    hidden_s: float,
) -> ProgramCost:
    """Return what the engine says of a walk."""
    sizes = static_bytes, transient_bytes
    return ProgramCost(compute_s, communication_s, *sizes, update_s, hidden_s=hidden_s)


def overlapping(device: Device) -> Overlapping:
    """Return what it takes to let collectives run beside operators, for the engine."""
    how = device.overlap or Overlap()
    copied_s = copy_line(2.0, device).s_per_byte
    return Overlapping(how.start_s, how.share, copied_s, how.keeps_peak)


def evaluator_of(tables: MeshTables) -> Evaluator:
    """Return the evaluator of ``tables``, which they keep."""
    if tables.evaluator is None:
        tables.evaluator = Evaluator(tables)
    assert isinstance(tables.evaluator, Evaluator)
    return tables.evaluator


_MOST_BYTES = 1 << 48
"""What no device holds for one operation, and little enough for 64 bits to add up a program."""


class _Costing:
    """What the walk asks for, once for all nodes and values alike."""

    def __init__(self, owner: Evaluator) -> None:
        self.tables, self.graph = owner.tables, owner.graph
        self.number, self.layouts = owner.number, owner.layouts
        self.keys: dict[tuple[str, tuple[int, ...], str, str | None], int] = {}
        self.masks: dict[Mask, int] = {}

    def strategy(self, position: int, picked: int) -> _StrategyCost:
        """Return what a strategy of the node at ``position`` of the variables costs.

        Raises `UserError` for one that no device can hold.
        """
        index = self.tables.variables[position]
        node, strategy = self.graph.nodes[index], self.tables.options[index][picked]
        kept = self.tables.static_bytes(node, strategy)
        needed = max(kept, self.tables.transient_bytes(node, strategy))
        if needed > _MOST_BYTES:
            raise UserError(
                f"{node.name}: needs {needed} bytes on one rank, expected at most 2^48 (256 TiB)"
            )
        wanted = [(value, strategy.operands[operand]) for operand, value in read(self.graph, node)]
        made = list(zip(node.results, strategy.results, strict=True))
        return (
            self.tables.op_time_s(node, strategy),
            self.tables.inner_time_s(node, strategy),
            kept,
            [self.number(layout) for _, layout in wanted],
            [self._bytes(v, x) if self.graph.producer(v).constant else 0 for v, x in wanted],
            [self.number(layout) for _, layout in made],
            [self._bytes(value, layout) for value, layout in made],
            *self._fills(node, strategy),
            self._apart(node, strategy),
        )

    def _fills(
        self, node: Node, strategy: Strategy
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return places and bytes of what is filled, among what is read, and the masks for it."""
        fills = self.tables.fills(node, strategy)
        place = {operand: number for number, (operand, _) in enumerate(read(self.graph, node))}
        masks = dict.fromkeys(fill.mask for fill in fills)
        numbers = [(self.masks.setdefault(m, len(self.masks)), m.bytes) for m in masks]
        return [(place[fill.operand], fill.bytes) for fill in fills], numbers

    def _apart(self, node: Node, strategy: Strategy) -> list[tuple[int, float]]:
        """Return places among what is read, and the additional seconds if one is resharded."""
        place = {operand: number for number, (operand, _) in enumerate(read(self.graph, node))}
        return [(place[operand], s) for operand, s in self.tables.apart_s(node, strategy)]

    def _bytes(self, value: int, layout: Layout) -> int:
        return tensor_bytes(self.graph.values[value].info, layout, self.tables.mesh)

    def path(self, value: int, source: int, target: int) -> tuple[float, list[_PathStep]]:
        """Return the time of a reshard, and its steps."""
        info = self.graph.values[value].info
        if info is None:
            return 0.0, []
        ends = self.layouts[source], self.layouts[target]
        resharder, size = self.tables.resharder, (info.sizes, info.item_bytes)
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
        return joining_time(kind, axes, self.tables.mesh, self.tables.device)

    def tree(self, value: int, source: int, targets: list[int]) -> list[tuple[int, int]]:
        """Return from which layout each of ``targets``, and of others in between, is made."""
        info = self.graph.values[value].info
        if info is None:
            return [(target, source) for target in targets]
        size, ends = (info.sizes, info.item_bytes), [self.layouts[target] for target in targets]
        tree = spread(self.tables.resharder, *size, self.layouts[source], ends)
        return [(self.number(target), self.number(held)) for target, held in tree.items()]
