"""Types of the entries of plan.json that are read; `plan.schema.json` describes all of them."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from tensoropt.runtime.support.expected import ExpectedErrorEntry

__all__ = [
    "CacheEntry",
    "DimEntry",
    "Entries",
    "GradientEntry",
    "GroupEntry",
    "HyperEntry",
    "LossEntry",
    "OptimizerEntry",
    "PassedEntry",
    "PinsCostEntry",
    "PinsEntry",
    "StagesEntry",
    "StateEntry",
    "StrategyEntry",
    "TensorEntry",
    "TextEntry",
    "TrainingEntry",
]


class TensorEntry(TypedDict):
    """A tensor: its global shape, with names for symbolic sizes, and its layout per mesh axis."""

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
    """A cache input and the output that replaces it in the next step; ``dim`` grows, if any does.

    ``in_place``: the output may overwrite the input's buffer, if it is large enough.
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
    """Text limits from a model's files: the longest context in tokens, and the end tokens."""

    context: int | None
    end: list[int]


class PinsCostEntry(TypedDict):
    """Relative cost of pins: extra time of the fastest point, extra memory of the leanest."""

    time: float
    memory: float


class PinsEntry(TypedDict):
    """The constraints of a search, as written by the user; ``cost`` is None if never computed.

    ``annotations`` is the name of a model; its annotations were used as pins.
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
    ignore_index: NotRequired[int]
    label_smoothing: NotRequired[float]
    class_weights: NotRequired[list[float]]


class OptimizerEntry(TypedDict):
    """The optimizer and its hyperparameters."""

    name: str
    momentum: float
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float


class HyperEntry(TypedDict):
    """An input that sets a hyperparameter, such as the learning rate."""

    name: str
    role: str
    dtype: str
    graphs: list[str]


class StateEntry(TensorEntry):
    """A tensor carried from step to step: an input, and the output ``result``."""

    kind: str
    of: str | None
    result: str
    graph: str
    read_by: list[str]


class GradientEntry(TensorEntry):
    """A gradient that the first graph returns for the update."""

    of: str
    accumulator: str | None


class GroupEntry(TypedDict):
    """Parameters with options of their own; a weight decay of None is the optimizer's."""

    patterns: list[str]
    weight_decay: float | None
    rate_factor: float


class TrainingEntry(TypedDict):
    """Entries that only the plan of a training step has."""

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
    weight_output: NotRequired[str]
    groups: NotRequired[list[GroupEntry]]


class PassedEntry(TypedDict):
    """A value that passes between graphs, with the shape of a rank's part.

    Sizes that only a run has are None.
    """

    name: str
    dtype: str
    shape: list[int | None]
    graph: str
    read_by: list[str]


class StagesEntry(TypedDict):
    """The stages of a training step, or of inference."""

    places: list[int]
    schedule: list[str]
    fullest: int
    graphs: list[str]
    passed: list[PassedEntry]
    devices: NotRequired[list[str]]


class ReplicasEntry(TypedDict):
    """The replicas of a training step: the micro-batches and the device of each."""

    micro_batches: list[int]
    devices: list[str]


class _Model(TypedDict):
    name: str
    sha256: str


class _Mesh(TypedDict):
    shape: list[int]


class _Predicted(TypedDict):
    time_s: float
    latency_s: NotRequired[float]
    interval_s: NotRequired[float]
    memory_bytes: int
    process_bytes: NotRequired[int]
    transient_bytes: int
    static_parts: NotRequired[dict[str, int]]
    expected_error: ExpectedErrorEntry | None


class Entries(TypedDict):
    """plan.json."""

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
    stages: NotRequired[StagesEntry]
    replicas: NotRequired[ReplicasEntry]
    files: dict[str, str]
    sha256: NotRequired[str]
