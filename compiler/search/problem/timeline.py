"""What one assignment does, step by step: the walk of ``evaluate.py`` that costs it, recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tensoropt.compiler.layout.layout import Layout
from tensoropt.compiler.search.problem.evaluate import Evaluation, Evaluator, Option, ProgramCost
from tensoropt.compiler.search.problem.options import stored
from tensoropt.compiler.search.problem.tables import tensor_bytes

__all__ = ["Alive", "Kept", "Movement", "Step", "Timeline", "timeline_of"]

StepKind = Literal["overhead", "op", "collective", "copy"]

COPIES = frozenset({"all_slice", "partialize", "copy"})
"""What moves nothing between ranks."""


@dataclass(frozen=True)
class Movement:
    """One collective, or one local copy between two layouts.

    ``value`` is the tensor, ``None`` for what an op runs inside. ``bytes`` are those that one rank
    puts in. ``dim`` is the dimension that is joined or cut, ``other_dim`` the second of an
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
    """One thing that a rank does, in program order.

    ``node`` is the node that runs, or the first that reads what is moved; ``None`` for the overhead
    of a graph. ``time_s`` are seconds; ``memory_bytes`` is what comes and goes and is alive.
    ``moment`` numbers the moments of :meth:`Timeline.alive`.
    """

    kind: StepKind
    time_s: float
    moment: int
    memory_bytes: int
    node: int | None = None
    movement: Movement | None = None


@dataclass(frozen=True)
class Alive:
    """A tensor in memory at one moment: a value in a layout, or what bodies hold (``None``)."""

    value: int | None
    layout: Layout | None
    bytes: int


@dataclass(frozen=True)
class Kept:
    """A tensor that stays for the whole run: a value in a layout, as ``kind``."""

    value: int
    layout: Layout
    bytes: int
    kind: str


@dataclass(frozen=True)
class Timeline:
    """All steps of a program under one assignment, and its memory; their sums are ``cost``."""

    cost: ProgramCost
    steps: Sequence[Step]
    kept: Sequence[Kept]
    peak: Sequence[Alive]
    peak_moment: int


def timeline_of(evaluator: Evaluator, assignment: Sequence[int]) -> Timeline:
    """Return what ``assignment`` does, as :meth:`Evaluator.evaluate` costs it.

    Linear in the operands of the program.
    """
    return _Recorder(evaluator).timeline(assignment)


@dataclass
class _Draft:
    kind: StepKind
    time_s: float
    moment: int
    node: int | None = None
    movement: Movement | None = None


class _Recorder(Evaluation):
    def __init__(self, owner: Evaluator) -> None:
        super().__init__(owner)
        self.drafts: list[_Draft] = []
        self.kept: list[Kept] = []
        self.running = -1  # the node that is run, or whose operands are fetched
        self.picked: dict[int, int] = {}  # the number of the strategy of each node
        self.updates = False  # whether the second graph of a training step has begun

    def timeline(self, assignment: Sequence[int]) -> Timeline:
        self._overhead()
        self.picked = dict(zip(self.owner.tables.variables, assignment, strict=True))
        cost = self.run(assignment)
        alive = self.lifetimes.alive_bytes()
        moment = alive.index(max(alive))
        steps = [
            Step(d.kind, d.time_s, d.moment, alive[d.moment], d.node, d.movement)
            for d in self.drafts
        ]
        self._keep_constants()
        return Timeline(cost, steps, self.kept, self._alive(moment), moment)

    def _overhead(self) -> None:
        overhead_s = self.owner.tables.device.step_overhead_s
        if overhead_s:
            self.drafts.append(_Draft("overhead", overhead_s, self.lifetimes.step))

    def node(self, index: int, option: Option) -> None:
        if self.owner.graph.trains and not self.updates and self.owner.is_update(index):
            self.updates = True
            self._overhead()
        self.running = index
        super().node(index, option)
        self._keep(index)
        if not option.runs or option.passes:
            return
        moment = self.lifetimes.step - 1
        self.drafts.append(_Draft("op", option.compute_s, moment, index))
        node, tables = self.owner.graph.nodes[index], self.owner.tables
        strategy = tables.options[index][self.picked[index]]
        for kind, axes, size, time_s in tables.inner_steps(node, strategy):
            movement = Movement(kind, axes, size)
            self.drafts.append(_Draft(_kind(kind), time_s, moment, index, movement))

    def move(self, value: int, source: int, target: int) -> None:
        moment = self.lifetimes.step
        super().move(value, source, target)
        if self.owner.is_constant(value):
            return
        whole = self.owner.whole(value)
        info, resharder = self.owner.graph.values[whole].info, self.owner.tables.resharder
        if info is None:
            return
        ends = self.owner.layouts[source], self.owner.layouts[target]
        path = resharder.path(info.shape, info.item_bytes, *ends)
        left_s = path.time_s
        for number, step in enumerate(path.steps):
            # Part of a shortest path is a shortest path; the last step takes what is left.
            own = resharder.path(info.shape, info.item_bytes, step.src, step.dst).time_s
            time_s = left_s if number == len(path.steps) - 1 else own
            left_s -= time_s
            size = tensor_bytes(info, step.src, self.owner.tables.mesh)
            movement = Movement(
                step.kind, step.axes, size, whole, step.src, step.dst, step.dim, step.other_dim
            )
            draft = _Draft(_kind(step.kind), time_s, moment + number, self.running, movement)
            self.drafts.append(draft)

    def _keep(self, index: int) -> None:
        """Note what a node that is no constant keeps, as ``MeshTables.static_bytes`` counts it."""
        graph, tables = self.owner.graph, self.owner.tables
        node, strategy = graph.nodes[index], tables.options[index][self.picked[index]]
        if node.constant:
            return
        for operand, info in graph.private_operands(node):
            layout, value = stored(strategy.operands[operand]), node.operands[operand]
            assert value is not None
            self._note(value, layout, tensor_bytes(info, layout, tables.mesh), "weights")
        if graph.adds_state(node):
            for value in node.results:
                held = graph.values[value]
                layout = strategy.results[held.index]
                size = tensor_bytes(held.info, layout, tables.mesh)
                self._note(value, layout, size, node.state or "gradient")

    def _keep_constants(self) -> None:
        graph = self.owner.graph
        for (producer, index, layout), size in self.constants.items():
            node = graph.nodes[producer]
            kind = "weights" if node.is_parameter else "constants"
            self._note(node.results[index], self.owner.layouts[layout], size, kind)

    def _note(self, value: int, layout: Layout, size: int, kind: str) -> None:
        if size:
            self.kept.append(Kept(value, layout, size, kind))

    def _alive(self, moment: int) -> list[Alive]:
        found = []
        for tensor, size in self.lifetimes.alive(moment).items():
            assert isinstance(tensor, tuple)
            if tensor[0] == "inside":
                found.append(Alive(None, None, size))
            else:
                value = self.owner.whole(tensor[0])
                layout = self.owner.layouts[tensor[1]] if len(tensor) == 2 else None
                found.append(Alive(value, layout, size))
        return sorted(found, key=lambda alive: -alive.bytes)


def _kind(name: str) -> StepKind:
    return "copy" if name in COPIES else "collective"
