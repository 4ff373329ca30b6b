"""What plan.json holds, as `plan.schema.json` has it, by what of it is read."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from tensoropt.runtime.support.expected import ExpectedErrorEntry

__all__ = [
    "CacheEntry",
    "DimEntry",
    "Entries",
    "GradientEntry",
    "HyperEntry",
    "LossEntry",
    "OptimizerEntry",
    "PinsCostEntry",
    "PinsEntry",
    "StateEntry",
    "StrategyEntry",
    "TensorEntry",
    "TextEntry",
    "TrainingEntry",
]


class TensorEntry(TypedDict):
    """A tensor: its global shape, with names for symbolic sizes, and its layout by mesh axis."""

    name: str
    dtype: str
    shape: list[int | str]
    layout: list[str]


class StrategyEntry(TypedDict):
    """A node of the model, and the layouts of its operands and results."""

    node: str
    op: str
    operands: list[list[str]]
    results: list[list[str]]


class CacheEntry(TypedDict):
    """An input and the output that takes its place in the next step; ``dim`` grows, if any does.

    ``in_place``: the output may be written where the input lies, if that has room.
    """

    past: str
    present: str
    dim: int | None
    in_place: bool


class DimEntry(TypedDict):
    """The sizes that a symbolic dimension may have."""

    first: int
    last: int
    step: int


class TextEntry(TypedDict):
    """What a decoder's files say of text: the most tokens it takes, and those that end it."""

    context: int | None
    end: list[int]


class PinsCostEntry(TypedDict):
    """By how much more, relatively, the fastest point takes and the leanest needs with pins."""

    time: float
    memory: float


class PinsEntry(TypedDict):
    """What a search had to heed, as it was written; ``cost`` is None where nobody has priced it.

    ``annotations`` is the name of the model whose annotations were pins.
    """

    pin: list[str]
    forbid: list[str]
    annotations: str | None
    cost: PinsCostEntry | None


class LossEntry(TypedDict):
    """The loss that a training step computes."""

    kind: str
    output: str
    labels: str | None
    classes: NotRequired[int | None]
    ignore: NotRequired[int | None]


class OptimizerEntry(TypedDict):
    """What updates the parameters."""

    name: str
    momentum: float
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float


class HyperEntry(TypedDict):
    """An input that says how to learn, such as the learning rate."""

    name: str
    role: str
    dtype: str
    graphs: list[str]


class StateEntry(TensorEntry):
    """A tensor that a step leaves changed for the next: an input, and an output."""

    kind: str
    of: str | None
    result: str
    graph: str
    read_by: list[str]


class GradientEntry(TensorEntry):
    """A gradient that the first graph leaves for the update."""

    of: str
    accumulator: str | None


class TrainingEntry(TypedDict):
    """What only the plan of a training step has."""

    loss: LossEntry
    optimizer: OptimizerEntry
    micro_batches: int
    clip_norm: float | None
    precision: str
    start: str
    hyper: list[HyperEntry]
    state: list[StateEntry]
    gradients: list[GradientEntry]
    loss_output: str


class _Model(TypedDict):
    name: str
    sha256: str


class _Mesh(TypedDict):
    shape: list[int]


class _Predicted(TypedDict):
    time_s: float
    memory_bytes: int
    process_bytes: NotRequired[int]
    transient_bytes: int
    static_parts: NotRequired[dict[str, int]]
    expected_error: ExpectedErrorEntry | None


class Entries(TypedDict):
    """A plan."""

    schema: int
    model: _Model
    mesh: _Mesh
    ranks: int
    predicted: _Predicted
    pins: NotRequired[PinsEntry]
    inputs: list[TensorEntry]
    outputs: list[TensorEntry]
    parameters: list[TensorEntry]
    strategies: list[StrategyEntry]
    dims: NotRequired[dict[str, DimEntry]]
    caches: NotRequired[list[CacheEntry]]
    text: NotRequired[TextEntry]
    target: NotRequired[str]
    training: NotRequired[TrainingEntry]
    files: dict[str, str]
    sha256: NotRequired[str]
