"""What was measured, as it is kept: single operators, collectives, and plans as a whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensoropt.compiler.calibrate.floor import Floor
from tensoropt.compiler.calibrate.planned import PlannedStep
from tensoropt.compiler.cost.compute import Work
from tensoropt.compiler.cost.expected import MeasuredModel
from tensoropt.compiler.cost.measured import Context
from tensoropt.compiler.layout.collective import Collective

__all__ = [
    "Basics",
    "CollectiveSample",
    "Machine",
    "Measurements",
    "OpSample",
    "Peak",
    "PlanSample",
    "alike",
]


@dataclass(frozen=True)
class OpSample:
    """``count`` nodes that do the same work after the same operators, and their median time; none
    if they are part of another node."""

    work: Work
    context: Context
    time_s: float
    count: int = 1


@dataclass(frozen=True)
class CollectiveSample:
    """A collective of ``ranks`` that put in so many bytes each, and its time."""

    kind: Collective
    ranks: int
    bytes: int
    time_s: float


@dataclass(frozen=True)
class PlanSample:
    """A plan of a model: what its prediction is made of, and the time of its step as measured.

    ``ops`` are its nodes as traced. ``predicted_bytes`` and ``measured_bytes`` are the memory of a
    rank, ``None`` where the system does not say or it was not measured.
    """

    model: MeasuredModel
    name: str
    step: PlannedStep
    measured_s: float
    ops: Sequence[OpSample]
    predicted_bytes: int | None = None
    measured_bytes: int | None = None


def alike(samples: Iterable[OpSample]) -> list[OpSample]:
    """Return one sample of all that do the same in the same context, with their median time.

    So a node that other work on the machine disturbed counts for no more than one of them.
    """
    groups: dict[tuple[Work, Context], list[OpSample]] = defaultdict(list)
    for sample in samples:
        groups[sample.work, sample.context].append(sample)
    return [
        OpSample(*key, _median_s(own), sum(s.count for s in own)) for key, own in groups.items()
    ]


def _median_s(samples: Sequence[OpSample]) -> float:
    return float(np.median([sample.time_s for sample in samples for _ in range(sample.count)]))


@dataclass(frozen=True)
class Peak:
    """The fastest product of a type, and the part of its rate that large products reach."""

    flop_per_s: float
    efficiency: float


@dataclass(frozen=True)
class Basics:
    """What a rank can do whatever the model, while all ``ranks`` of a machine do the same."""

    ranks: int
    floor: Floor
    peaks: Mapping[str, Peak]
    bandwidth_bytes_per_s: float
    capacity_bytes: int


@dataclass(frozen=True)
class Machine:
    """What has to be alike for measurements to go together: the kind of processor or GPU, what
    ranks run on, the threads of each, and the version of ONNX Runtime, without its last part."""

    processor: str
    provider: str
    threads: int
    onnxruntime: str


@dataclass
class Measurements:
    """All that was measured of a machine: ``common`` are operators in graphs of their own."""

    machine: Machine
    basics: Basics
    common: list[OpSample] = field(default_factory=list)
    collectives: list[CollectiveSample] = field(default_factory=list)
    plans: list[PlanSample] = field(default_factory=list)
