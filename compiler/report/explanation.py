"""What a plan does and why, as data: layers, splits, collectives, memory, a timeline.

Times are seconds and sizes bytes, of one rank and one step. Made by ``explain/``; the text form and
pictures are made of these classes alone. Tensors have their names in the model; what a node makes
has the name of that node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from tensoropt.compiler.cost.expected_error import PlanError
from tensoropt.runtime.plan.entries import PinsEntry

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
    "Tensor",
    "TimelineEntry",
    "joined",
    "splits_text",
]

SCHEMA = 1

Kind = Literal["overhead", "op", "collective", "copy"]


@dataclass(frozen=True)
class Split:
    """What some mesh axes do to an op, such as ``x``: ``column split`` of its ``weight``.

    ``label`` says what is cut in the reader's words: output features, heads, batch. With ``sums``
    the op leaves partial sums along these axes.
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
        """Return the same of any weight: what ops of layers alike have in common."""
        return replace(self, weight=None)


def splits_text(splits: Sequence[Split]) -> str:
    """Return how an op is split, in words; replicated where it is not."""
    return "; ".join(split.text for split in splits) or "replicated"


@dataclass(frozen=True)
class Operation:
    """One op of a layer. ``splits`` is empty where every rank does all of it.

    ``name`` is the node's, ``weights`` are the parameters that it reads, ``main`` says whether it
    is one to show where only some are: it reads a matrix of weights, or mixes values as attention
    does. ``phase`` is empty for inference. ``operands`` and ``results`` are layouts, one placement
    per mesh axis.
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
        """How it is split, in words, with the axes."""
        return splits_text(self.splits)


@dataclass(frozen=True)
class Communication:
    """One collective or local copy of a layer.

    ``kind`` is all_reduce, all_gather, reduce_scatter, all_to_all, collective_permute, or a copy:
    all_slice, partialize, pad, crop, copy. ``bytes`` are those that one rank puts in, of what pads
    or crops those of the larger tensor; ``why`` says which layouts disagree, or which partial sums
    are summed. ``producer`` and ``consumer`` are names of nodes or arguments. ``entry`` is its
    place in the timeline.
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
        """Whether nothing is sent."""
        return self.kind in ("all_slice", "partialize", "pad", "crop", "copy")


@dataclass(frozen=True)
class Member:
    """One of the layers that are alike: its name, and the bytes of what it keeps."""

    name: str
    static_bytes: int


@dataclass(frozen=True)
class Layer:
    """Layers that do the same, described once: ``members`` are their names in program order.

    Ops, communication and times are those of one of them (the first).
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
        """Time of one of them."""
        return self.compute_s + self.communication_s

    @property
    def title(self) -> str:
        """The names in one: ``h.0``, ``h.0 to h.11``, ``h.0, h.2``."""
        return joined([member.name for member in self.members])


def joined(names: Sequence[str]) -> str:
    """Return the names of layers as one: all of two, else the first and the last."""
    return " and ".join(names) if len(names) <= 2 else f"{names[0]} to {names[-1]}"


@dataclass(frozen=True)
class TimelineEntry:
    """One thing that a rank does, in program order, and the bytes in memory meanwhile.

    ``beside`` says of a collective that the rank goes on with what follows while it runs.
    ``layer`` is the name of the layer (a :class:`Member`), ``tensor`` what is moved or made;
    ``reader`` the node that first reads what is moved.
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
    """An op or collective that takes much time: ``count`` alike in ``layer`` (a title) together."""

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
    """A tensor in memory: the bytes of one rank's part. ``kind`` is activation, inside (of a
    body), weights, constants, or what a training step keeps."""

    name: str
    kind: str
    layer: str
    layout: tuple[str, ...]
    bytes: int


@dataclass(frozen=True)
class Memory:
    """What bounds the memory of a rank: static bytes by kind, and what is alive at the peak.

    ``at`` is the index of the first timeline entry at the peak, ``None`` for an empty program.
    ``alive`` and ``kept`` are sorted by size; the sums are those of the plan. ``beside_bytes`` is
    what the process takes that is no tensor, 0 where the device description does not say it.
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
    """How an op is split in the neighbour instead.

    ``name`` is that of its node in the first of ``count`` layers, which ``layer`` names, and
    ``weights`` are the parameters that it reads there.
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
    """The next point of the frontier in one direction, and what it does otherwise.

    ``others`` counts ops beside those of ``changes`` that are split in another way.
    """

    index: int
    mesh: tuple[int, ...]
    recompute: str | None
    micro_batches: int | None
    time_s: float
    process_bytes: int
    memory_bytes: int
    changes: tuple[Change, ...]
    others: int


@dataclass(frozen=True)
class Explanation:
    """What a plan does. ``axes`` names the mesh axes; ``marks`` are those of the point.

    ``faster`` and ``leaner`` are the neighbours on the frontier; ``update_s`` is the part of a
    training step that is spent once per step, however many micro-batches there are. ``hidden_s`` is
    the part of the communication that goes on while operators run. ``pins`` are
    those that it was searched with, and what they cost. ``expected_error`` is how far off its
    figures are to be expected; ``None`` where nobody measured the device.
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

    @property
    def devices(self) -> int:
        product = 1
        for size in self.mesh:
            product *= size
        return product

    @property
    def memory_bytes(self) -> int:
        """What tensors take."""
        return self.memory.static_bytes + self.memory.transient_bytes

    @property
    def process_bytes(self) -> int:
        """What the process of a rank takes, as tables show it."""
        return self.memory_bytes + self.memory.beside_bytes

    def layer_titles(self) -> dict[str, str]:
        """Return by the name of each layer the title of the group that it is in."""
        return {member.name: layer.title for layer in self.layers for member in layer.members}

    def to_json(self) -> dict[str, Any]:
        """Return all of it for the JSON encoder: fields by their names, and a ``schema``."""
        fields = asdict(self)
        layers = [
            {**row, "title": layer.title, "count": layer.count}
            for row, layer in zip(fields["layers"], self.layers, strict=True)
        ]
        sizes = {"process_bytes": self.process_bytes, "memory_bytes": self.memory_bytes}
        return {"schema": SCHEMA, **fields, "layers": layers, **sizes}
