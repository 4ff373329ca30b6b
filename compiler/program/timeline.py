"""Timeline of one assignment: the recorded walk of its cost, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.layout.sizes import end_of, mean_of
from tensoropt.compiler.program.constants import equal_constants
from tensoropt.compiler.program.costs import tensor_bytes
from tensoropt.compiler.program.evaluate import Evaluator, ProgramCost
from tensoropt.compiler.program.graph import Argument, Graph, Node, Op, once_per_graph
from tensoropt.compiler.program.options import stored
from tensoropt.compiler.program.program import read
from tensoropt.compiler.reshard.resharder import TimedMove
from tensoropt.compiler.sharding.rule.op_info import TensorInfo
from tensoropt.runtime.layout.layout import Layout

__all__ = ["Alive", "Kept", "Movement", "Step", "Timeline", "node_times_of", "timeline_of"]

StepKind = Literal["overhead", "op", "collective", "copy"]

COPIES = frozenset({"all_slice", "partialize", "pad", "crop", "arrange", "restore", "copy"})
"""Kinds of steps without communication."""


@dataclass(frozen=True)
class Movement:
    """One collective, or one local copy between two layouts.

    ``value`` is the tensor, ``None`` for a step inside an op. ``bytes`` is the input of one rank.
    ``dim`` is the dimension that is joined or sliced, ``other_dim`` the second dimension of an
    all-to-all.
    """

    kind: str
    axes: tuple[int, ...]
    bytes: int
    value: int | None = None
    src: Layout | None = None
    dst: Layout | None = None
    dim: int | None = None
    other_dim: int | None = None


@dataclass(frozen=True)
class Step:
    """One step of a rank, in program order.

    ``node`` is the node that runs, or the first reader of a resharded tensor; ``None`` for the
    overhead of a graph. ``time_s`` are seconds, and ``memory_bytes`` the live transient bytes.
    ``moment`` is a moment among the live ranges of :class:`Record`. Fused collectives have the same
    ``group``, the number of its first step, and a share of its time each. ``start_s`` is the start
    of the step, and ``beside`` marks a collective that overlaps with operators.
    """

    kind: StepKind
    time_s: float
    moment: int
    memory_bytes: int
    node: int | None = None
    movement: Movement | None = None
    group: int | None = None
    start_s: float = 0.0
    beside: bool = False


@dataclass(frozen=True)
class Alive:
    """A live tensor at one moment: a value in a layout, or tensors inside of bodies (``None``)."""

    value: int | None
    layout: Layout | None
    bytes: int


@dataclass(frozen=True)
class Kept:
    """A static tensor: a value in a layout, and its ``kind``."""

    value: int
    layout: Layout
    bytes: int
    kind: str


@dataclass(frozen=True)
class Timeline:
    """All steps of a program under one assignment, and its memory; their sums are ``cost``.

    An op that runs once for each micro-batch is one step, with the time of all runs.
    """

    cost: ProgramCost
    steps: Sequence[Step]
    kept: Sequence[Kept]
    peak: Sequence[Alive]
    peak_moment: int


def timeline_of(evaluator: Evaluator, assignment: Sequence[int]) -> Timeline:
    """Return the timeline of ``assignment``, with the costs of :meth:`Evaluator.emitted`.

    Linear in the operands of the program.
    """
    return _Reader(evaluator, assignment).timeline()


def node_times_of(
    evaluator: Evaluator, assignment: Sequence[int]
) -> tuple[ProgramCost, list[float], list[Kept]]:
    """Return the cost of ``assignment``, the seconds of each node, and the static tensors.

    The seconds include reshards of operands that the node is the first to read. They are those of
    :func:`timeline_of`, which takes longer, on a device on which no collective overlaps.
    """
    reader = _Reader(evaluator, assignment, overlaps=False)
    reader.read()
    found = [0.0] * len(reader.graph.nodes)
    for draft in reader.drafts:
        if draft.node is not None:
            found[draft.node] += draft.time_s
    return reader.record.cost, found, reader.kept


_InnerSteps = Sequence[tuple[str, tuple[int, ...], int, float]]


_Sent = tuple[str, tuple[int, ...], float]
"""The kind of a collective, its axes, and the bytes of a rank on average."""


@dataclass(slots=True)
class _Draft:
    """A step to be; ``move`` is a step of a reshard, with the number of the value."""

    kind: StepKind
    time_s: float
    moment: int
    node: int | None = None
    inner: Movement | None = None
    move: tuple[int, TimedMove] | None = None
    sent: _Sent | None = None
    group: int | None = None


class _Reader:
    def __init__(
        self, owner: Evaluator, assignment: Sequence[int], *, overlaps: bool = True
    ) -> None:
        self.owner, self.costs, self.graph = owner, owner.costs, owner.graph
        self.record = owner.record(assignment, overlaps=overlaps)
        self.picked = dict(zip(self.costs.variables, assignment, strict=True))
        self.drafts: list[_Draft] = []
        self.known: dict[tuple[int, int], tuple[float, _InnerSteps]] = {}
        self.moves: dict[tuple[int, int, int], list[tuple[TimedMove, StepKind, _Sent]]] = {}
        self.kept: list[Kept] = []
        self.repeats, self.holders = _repeats(self.graph), _holders(self.graph)

    def read(self) -> None:
        """Make a draft of each step, in order."""
        graph, begins = self.graph, self.graph.trains
        self._overhead(0, graph.micro_batches)
        for position, value, source, target, moment in self.record.events.tolist():
            index = self.costs.variables[position]
            if begins and graph.updates(graph.nodes[index]):  # the second graph of a training step
                begins = False
                self._overhead(moment, 1)
            if value < 0:
                self._run(index, moment)
            else:
                self._move(index, value, source, target, moment)
        self._keep_constants()
        self._join()

    def timeline(self) -> Timeline:
        self.read()
        alive = self.record.alive_bytes().tolist()
        moment = alive.index(max(alive))
        steps = [
            self._step(draft, start_s, alive)
            for draft, start_s in zip(self.drafts, self._starts(), strict=True)
        ]
        return Timeline(self.record.cost, steps, self.kept, self._alive(moment), moment)

    def _step(self, draft: _Draft, start_s: float, alive: Sequence[int]) -> Step:
        at, end = self.record.place(draft.moment), self.record.end(draft.moment)
        movement = draft.inner if draft.move is None else self._movement(*draft.move)
        what = draft.kind, draft.time_s, at, alive[at], draft.node, movement, draft.group
        return Step(*what, start_s, beside=draft.kind == "collective" and end > at)

    def _starts(self) -> Iterator[float]:
        """Yield the start of each step: the end of the step before, unless it overlaps."""
        now_s = overhead_s = 0.0
        began: dict[int, float] = {}  # the next start in a fused group, or inside an op
        for draft in self.drafts:
            start_s = now_s
            if draft.kind == "overhead":
                overhead_s += draft.time_s
            elif self.record.begin_s:
                first = self.record.groups[draft.moment]
                moment = draft.moment if first < 0 or draft.kind != "collective" else first
                start_s = began.get(moment, overhead_s + self.record.begin_s[draft.moment])
                began[moment] = start_s + draft.time_s
            yield start_s
            now_s = start_s + draft.time_s

    def _join(self) -> None:
        """Sort the steps, and divide the time of fused collectives among them."""
        self.drafts.sort(key=lambda draft: self.record.place(draft.moment))
        groups: dict[int, list[int]] = {}
        for number, draft in enumerate(self.drafts):
            first = self.record.groups[draft.moment] if draft.kind == "collective" else -1
            if first >= 0 and draft.sent is not None:
                groups.setdefault(first, []).append(number)
        for numbers in groups.values():
            members = [self.drafts[number] for number in numbers]
            alone_s = sum(draft.time_s for draft in members)
            sent = [draft.sent for draft in members if draft.sent is not None]
            joined_s = self.repeats[members[0].node or 0] * self.owner.joined_s(sent)
            for draft in members:
                draft.time_s *= joined_s / alone_s if alone_s else 0.0
                draft.group = numbers[0]

    def _overhead(self, moment: int, times: int) -> None:
        overhead_s = times * self.costs.device.step_overhead_s
        if overhead_s:
            self.drafts.append(_Draft("overhead", overhead_s, moment))

    def _run(self, index: int, moment: int) -> None:
        if index in self.holders:
            self._keep(index)
        node, strategy = self.graph.nodes[index], self._strategy(index)
        if not isinstance(node, Op) or node.constant or node.passes:
            return
        times, (op_s, inner) = self.repeats[index], self._times(index, node, strategy)
        own_s = times * (op_s + (self._apart_s(node, strategy) if node.info.in_place else 0.0))
        self.drafts.append(_Draft("op", own_s, moment, index))
        for kind, axes, size, time_s in inner:
            movement = Movement(kind, axes, size)
            self.drafts.append(_Draft(_kind(kind), times * time_s, moment, index, movement))

    def _times(self, index: int, node: Op, strategy: Strategy) -> tuple[float, _InnerSteps]:
        """Return the time of an op and its inner steps, which are found once for equal ops."""
        key = self.costs.alike[index], self.picked[index]
        if key not in self.known:
            inner = self.costs.inner_steps(node, strategy)
            self.known[key] = self.costs.op_time_s(node, strategy), inner
        return self.known[key]

    def _apart_s(self, node: Node, strategy: Strategy) -> float:
        """Return the extra time of an op for resharded operands that it cannot update in place."""
        total_s = 0.0
        for operand, apart_s in self.costs.apart_s(node, strategy):
            value = node.operands[operand]
            assert value is not None
            held = self.graph.values[value]
            lies = self._strategy(held.producer).results[held.index]
            total_s += apart_s if lies != strategy.operands[operand] else 0.0
        return total_s

    def _strategy(self, index: int) -> Strategy:
        return self.costs.options[index][self.picked[index]]

    def _move(self, index: int, value: int, source: int, target: int, moment: int) -> None:
        info = self.graph.values[value].info
        if info is None:
            return
        key = id(info), source, target
        if key not in self.moves:
            self.moves[key] = [*self._path(info, source, target)]
        times = self.repeats[index]
        for number, (one, kind, sent) in enumerate(self.moves[key]):
            at, move = moment + number, (value, one)
            draft = _Draft(kind, times * one.time_s, at, index, move=move, sent=sent)
            self.drafts.append(draft)

    def _path(
        self, info: TensorInfo, source: int, target: int
    ) -> Iterator[tuple[TimedMove, StepKind, _Sent]]:
        """Yield the operations of a reshard, which are found once for equal tensors."""
        resharder, of = self.costs.resharder, (info.sizes, info.item_bytes)
        path = resharder.path(*of, self.owner.layouts[source], self.owner.layouts[target])
        for one in resharder.moves(*of, path):
            kind = one.move.kind
            sent = kind, one.step.axes, mean_of(one.read) * info.item_bytes
            yield one, _kind(kind), sent

    def _movement(self, value: int, one: TimedMove) -> Movement:
        info, step = self.graph.values[value].info, one.step
        assert info is not None
        size, ends = end_of(one.read) * info.item_bytes, (step.src, step.dst)
        return Movement(one.move.kind, step.axes, size, value, *ends, step.dim, step.other_dim)

    def _keep(self, index: int) -> None:
        """Note the static tensors of a node, as ``NodeCosts.static_bytes`` counts them."""
        graph, node, strategy = self.graph, self.graph.nodes[index], self._strategy(index)
        if node.constant:
            return
        for operand, info in graph.private_operands(node):
            layout, value = stored(strategy.operands[operand]), node.operands[operand]
            assert value is not None
            self._note(value, layout, tensor_bytes(info, layout, self.costs.mesh), "weights")
        kind = (node.state or "caches") if isinstance(node, Argument) else "gradient"
        for value, layout in zip(node.results, strategy.results, strict=True):
            if value in graph.storage.static:
                size = tensor_bytes(graph.values[value].info, layout, self.costs.mesh)
                self._note(value, layout, size, kind)

    def _keep_constants(self) -> None:
        """Note each constant once per layout in which it is read."""
        graph, found = self.graph, dict[tuple[int, int, Layout], int]()
        for index, operand, value in _constant_reads(graph):
            if index in self.picked:
                held, layout = graph.values[value], self._strategy(index).operands[operand]
                key = (equal_constants(graph)[held.producer], held.index, layout)
                if key not in found:
                    found[key] = tensor_bytes(held.info, layout, self.costs.mesh)
        for (producer, index, layout), size in found.items():
            node = graph.nodes[producer]
            kind = "weights" if isinstance(node, Argument) else "constants"
            self._note(node.results[index], layout, size, kind)

    def _note(self, value: int, layout: Layout, size: int, kind: str) -> None:
        if size:
            self.kept.append(Kept(value, layout, size, kind))

    def _alive(self, moment: int) -> list[Alive]:
        found = []
        for value, layout, first, last, size in self.record.lives.tolist():
            if first <= moment <= last:
                lies = None if layout < 0 else self.owner.layouts[layout]
                found.append(Alive(None if value < 0 else value, lies, size))
        return sorted(found, key=lambda alive: -alive.bytes)


@once_per_graph
def _repeats(graph: Graph) -> list[int]:
    """Return the number of times that a step runs each node."""
    return [graph.times(node) for node in graph.nodes]


@once_per_graph
def _holders(graph: Graph) -> frozenset[int]:
    """Return the nodes with static tensors."""
    private, static = graph.storage.private, graph.storage.static
    return frozenset(
        index
        for index, node in enumerate(graph.nodes)
        if not (private.isdisjoint(node.operands) and static.isdisjoint(node.results))
    )


@once_per_graph
def _constant_reads(graph: Graph) -> list[tuple[int, int, int]]:
    """Return the node, the operand and the value of each read of a constant at run time."""
    return [
        (index, operand, value)
        for index, node in enumerate(graph.nodes)
        if not node.constant
        for operand, value in read(graph, node)
        if value in graph.storage.constants
    ]


def _kind(name: str) -> StepKind:
    return "copy" if name in COPIES else "collective"
