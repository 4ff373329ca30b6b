"""Explanation of a plan as data: layers, splits, collectives, memory and a timeline.

Times are in seconds and sizes in bytes, of one rank and one step. ``explain/`` builds these
classes; the text form and the plots read nothing else. Inputs and weights have their names in the
model, the result of a node has the name of the node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from tensoropt.compiler.cost.expected_error import PlanError
from tensoropt.compiler.search.frontier.points import ReplicaRow
from tensoropt.compiler.support.units import format_seconds
from tensoropt.runtime.plan.entries import PinsEntry
from tensoropt.runtime.stages.schedule import WORK_NAMES
from tensoropt.runtime.support.collectives import COLLECTIVES

__all__ = [
    "SCHEMA",
    "Change",
    "Communication",
    "Costly",
    "Explanation",
    "Layer",
    "Member",
    "Memory",
    "Neighbour",
    "Operation",
    "Split",
    "StageRow",
    "StagedStep",
    "TaskEntry",
    "Tensor",
    "TimelineEntry",
    "joined",
    "splits_text",
]

SCHEMA = 1

Kind = Literal["overhead", "op", "collective", "copy"]


@dataclass(frozen=True)
class Split:
    """Effect of some mesh axes on an op, such as ``x``: ``column split`` of its ``weight``.

    ``label`` names the split dimension in words: output features, heads, batch. With ``sums`` the
    op leaves partial sums along these axes.
    """

    axes: tuple[str, ...]
    how: str
    label: str
    weight: str | None = None
    sums: bool = False

    @property
    def text(self) -> str:
        """The split in words: column split of h.0.fc.weight over x (output features)."""
        of = f" of {self.weight}" if self.weight else ""
        what = f" ({self.label})" if self.label and self.label not in self.how else ""
        sums = ", leaves partial sums" if self.sums else ""
        return f"{self.how}{of} over {','.join(self.axes)}{what}{sums}"

    def without_weight(self) -> Split:
        """Return the split without the weight's name, to compare ops of different layers."""
        return replace(self, weight=None)


def splits_text(splits: Sequence[Split]) -> str:
    """Return the splits of an op in words; ``replicated`` for none."""
    return "; ".join(split.text for split in splits) or "replicated"


@dataclass(frozen=True)
class Operation:
    """One op of a layer; ``splits`` is empty if every rank does all of it.

    ``name`` is the node's, ``weights`` are the parameters that it reads. ``main`` marks the ops
    that short listings show: they read a weight matrix, or multiply activations as attention does.
    ``phase`` is empty for inference. ``operands`` and ``results`` are layouts, one placement per
    mesh axis. ``entry`` is its index in the timeline.
    """

    name: str
    op: str
    phase: str
    weights: tuple[str, ...]
    splits: tuple[Split, ...]
    operands: tuple[tuple[str, ...], ...]
    results: tuple[tuple[str, ...], ...]
    time_s: float
    main: bool
    entry: int

    @property
    def text(self) -> str:
        """The splits in words, with the axes."""
        return splits_text(self.splits)


@dataclass(frozen=True)
class Communication:
    """One collective or local copy of a layer.

    ``kind`` is the name of a collective, or of a copy: all_slice, partialize, pad, crop, copy.
    ``bytes`` is the size of one rank's input; for pads and crops, of the larger tensor. ``why``
    names the layouts that disagree, or the partial sums that are reduced. ``producer`` and
    ``consumer`` are names of nodes or arguments. ``entry`` is its index in the timeline.
    """

    kind: str
    tensor: str
    axes: tuple[str, ...]
    bytes: int
    time_s: float
    why: str
    phase: str
    producer: str
    consumer: str
    entry: int

    @property
    def is_copy(self) -> bool:
        """True for local copies, which send nothing."""
        return self.kind not in COLLECTIVES


@dataclass(frozen=True)
class Member:
    """One of several equal layers: its name and the bytes of its static memory."""

    name: str
    static_bytes: int


@dataclass(frozen=True)
class Layer:
    """Equal layers, described once; ``members`` are in program order.

    Ops, communication and times are those of the first member.
    """

    members: tuple[Member, ...]
    operations: tuple[Operation, ...]
    communication: tuple[Communication, ...]
    compute_s: float
    communication_s: float

    @property
    def count(self) -> int:
        return len(self.members)

    @property
    def time_s(self) -> float:
        """The time of one member."""
        return self.compute_s + self.communication_s

    @property
    def title(self) -> str:
        """The joined names: ``h.0``, ``h.0 and h.1``, ``h.0 to h.11``."""
        return joined([member.name for member in self.members])


def joined(names: Sequence[str]) -> str:
    """Return one name for several layers: up to two names, else the first and the last."""
    return " and ".join(names) if len(names) <= 2 else f"{names[0]} to {names[-1]}"


@dataclass(frozen=True)
class TimelineEntry:
    """One step of a rank, in program order, and the bytes in memory during it.

    ``beside`` marks a collective that overlaps with the operators after it. ``layer`` is the name
    of the layer (a :class:`Member`), ``tensor`` the resharded or computed tensor, ``reader`` the
    node that first reads a resharded tensor.
    """

    kind: Kind
    name: str
    op: str
    layer: str
    phase: str
    start_s: float
    end_s: float
    time_s: float
    memory_bytes: int
    tensor: str
    bytes: int
    axes: tuple[str, ...]
    text: str
    reader: str = ""
    beside: bool = False


@dataclass(frozen=True)
class Costly:
    """An op or collective of much time: the sum over ``count`` equal ones in ``layer``, a title."""

    kind: Kind
    name: str
    op: str
    layer: str
    count: int
    time_s: float
    share: float
    text: str


@dataclass(frozen=True)
class Tensor:
    """A tensor in memory, with the bytes of one rank's part.

    ``kind`` is activation, inside (of a body), weights, constants, or a kind of training state.
    """

    name: str
    kind: str
    layer: str
    layout: tuple[str, ...]
    bytes: int


@dataclass(frozen=True)
class Memory:
    """Peak memory of a rank: static bytes by kind, and the tensors that are live at the peak.

    ``at`` is the index of the first timeline entry at the peak, ``None`` for an empty program.
    ``alive`` and ``kept`` are sorted by size and add up to the figures of the plan.
    ``beside_bytes`` is the memory of the process other than tensors, 0 if the device description
    does not predict it.
    """

    static_bytes: int
    transient_bytes: int
    beside_bytes: int
    static_parts: dict[str, int]
    kept: tuple[Tensor, ...]
    alive: tuple[Tensor, ...]
    at: int | None


@dataclass(frozen=True)
class Change:
    """Change of the split of an op in a neighbour.

    ``layer`` names ``count`` layers; ``name`` and ``weights`` are the node and its parameters in
    the first of them.
    """

    layer: str
    count: int
    name: str
    op: str
    weights: tuple[str, ...]
    before: str
    after: str


@dataclass(frozen=True)
class Neighbour:
    """The next point of the frontier in one direction, and its differences.

    Each of its ``stages`` or ``replicas`` has the ``mesh``, and ``schedule`` is the family of the
    schedule of stages.
    ``is_above_capacity`` if its process takes more memory than the device has. ``others`` counts
    the ops outside ``changes`` that are split in another way.
    """

    index: int
    mesh: tuple[int, ...]
    recompute: str | None
    micro_batches: int | None
    time_s: float
    process_bytes: int
    memory_bytes: int
    is_above_capacity: bool
    changes: tuple[Change, ...]
    others: int
    stages: int
    schedule: str
    replicas: int = 0


@dataclass(frozen=True)
class StageRow:
    """A stage of a pipeline: its chunks, the seconds of its tasks and those without a task.

    ``memory_bytes`` includes ``static_bytes`` and the ``kept_bytes`` of micro-batches or inputs in
    flight. For each of these it sends ``sent_bytes`` to the stages ``sends_to``: values forward,
    and gradients back. Times are of a whole training step, or of one input of a stream. ``device``
    is ``None`` if all stages have like devices.
    """

    chunks: tuple[int, ...]
    busy_s: float
    idle_s: float
    memory_bytes: int
    static_bytes: int
    kept_bytes: int
    sent_bytes: int
    sends_to: tuple[int, ...]
    device: str | None = None


@dataclass(frozen=True)
class TaskEntry:
    """A task of a stage: forward (F), backward (B) or gradients of weights (W)."""

    stage: int
    work: str
    micro_batch: int
    chunk: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class StagedStep:
    """A program in stages: the family of its schedule, the stages, and the tasks of all stages.

    ``idle_share`` is the part of the time in which a stage has no task, on average. The work that a
    stage does once per step follows after its last task. In a stream of inputs, the tasks are of
    the first inputs, ``latency_s`` is the time of one input, and ``interval_s`` the time between
    results; both are ``None`` for a training step.
    """

    schedule: str
    micro_batches: int
    idle_share: float
    stages: tuple[StageRow, ...]
    tasks: tuple[TaskEntry, ...]
    latency_s: float | None = None
    interval_s: float | None = None

    @property
    def works(self) -> dict[str, str]:
        """The names of the kinds of tasks that it has, by letter."""
        found = {task.work for task in self.tasks}
        return {work: name for work, name in WORK_NAMES.items() if work in found}

    @property
    def about(self) -> str:
        """The words on the schedule, and the figures of a stream."""
        idle = f"a stage has no task for {self.idle_share:.1%} of the time"
        if self.latency_s is None or self.interval_s is None:
            return f"{self.schedule}, {self.micro_batches} micro-batches; {idle}"
        return (
            f"{self.schedule}, latency {format_seconds(self.latency_s)}, a result every "
            f"{format_seconds(self.interval_s)} ({1 / self.interval_s:.4g} runs/s); {idle}"
        )

    @property
    def fullest(self) -> StageRow:
        """The stage with the most memory."""
        return max(self.stages, key=lambda stage: stage.memory_bytes)

    @property
    def end_s(self) -> float:
        """The end of the last task."""
        return max(task.end_s for task in self.tasks)


@dataclass(frozen=True)
class Explanation:
    """Explanation of a plan. ``axes`` names the mesh axes; ``marks`` are the point's.

    ``faster`` and ``leaner`` are the neighbours on the frontier. ``update_s`` is the time of the
    update, spent once per training step whatever the number of micro-batches. ``hidden_s`` is the
    communication that overlaps with operators. ``pins`` are the pins of the search and their cost.
    ``expected_error`` is the expected error of the figures, ``None`` if the device has not been
    measured, and ``parts_s`` the time of the parts of the step that tables of the device measure.
    Of a ``staged`` step, layers, timeline and memory have all layers on one stage. With
    ``replicas``, layers and timeline have all micro-batches, on the slowest of them.
    """

    model: str
    device: str
    mesh: tuple[int, ...]
    axes: tuple[str, ...]
    index: int
    points: int
    marks: tuple[str, ...]
    recompute: str | None
    micro_batches: int | None
    time_s: float
    compute_s: float
    communication_s: float
    hidden_s: float
    update_s: float
    layers: tuple[Layer, ...]
    timeline: tuple[TimelineEntry, ...]
    costly: tuple[Costly, ...]
    memory: Memory
    faster: Neighbour | None
    leaner: Neighbour | None
    pins: PinsEntry | None = None
    expected_error: PlanError | None = None
    parts_s: Mapping[str, float] = field(default_factory=dict)
    staged: StagedStep | None = None
    replicas: tuple[ReplicaRow, ...] = ()

    @property
    def devices(self) -> int:
        stages = 1 if self.staged is None else len(self.staged.stages)
        return max(stages, len(self.replicas)) * math.prod(self.mesh)

    @property
    def part_shares(self) -> dict[str, float]:
        """The share of the time of each measured part, of operators and collectives together."""
        total_s = self.compute_s + self.communication_s
        return {name: part_s / total_s for name, part_s in self.parts_s.items() if total_s}

    @property
    def memory_bytes(self) -> int:
        """The peak memory of tensors, of the fullest stage if there are several."""
        if self.staged is not None:
            return self.staged.fullest.memory_bytes
        return self.memory.static_bytes + self.memory.transient_bytes

    @property
    def process_bytes(self) -> int:
        """The peak memory of a rank's process, as tables show it."""
        return self.memory_bytes + self.memory.beside_bytes

    def layer_titles(self) -> dict[str, str]:
        """Return the title of each layer's group, by the name of the layer."""
        return {member.name: layer.title for layer in self.layers for member in layer.members}

    def to_json(self) -> dict[str, Any]:
        """Return all fields by name for the JSON encoder, and a ``schema``."""
        fields = asdict(self)
        layers = [
            {**row, "title": layer.title, "count": layer.count}
            for row, layer in zip(fields["layers"], self.layers, strict=True)
        ]
        sizes = {"process_bytes": self.process_bytes, "memory_bytes": self.memory_bytes}
        return {"schema": SCHEMA, **fields, "layers": layers, **sizes}
