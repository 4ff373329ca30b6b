"""Samples: measurements of operators, collectives and whole plans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np

from tensoropt.compiler.calibrate.floor import Floor
from tensoropt.compiler.calibrate.planned import PlannedStep
from tensoropt.compiler.cost.compute import Work
from tensoropt.compiler.cost.expected_error import MeasuredModel
from tensoropt.compiler.cost.machine import Machine
from tensoropt.compiler.cost.measurements import Context
from tensoropt.compiler.cost.overlap import Overlap
from tensoropt.compiler.cost.process import Process

__all__ = [
    "Basics",
    "CollectiveSample",
    "Measurements",
    "OpSample",
    "Peak",
    "PlanSample",
    "fastest",
    "merge_equal",
]


class _Timed(Protocol):
    @property
    def time_s(self) -> float: ...


_S = TypeVar("_S", bound=_Timed)


@dataclass(frozen=True)
class OpSample:
    """``count`` nodes with the same work and the same producers, and their median time.

    The time is 0 for nodes that are fused into another node.
    """

    work: Work
    context: Context
    time_s: float
    count: int = 1


@dataclass(frozen=True)
class CollectiveSample:
    """A collective of ``ranks``, the bytes of each rank's input, and its time."""

    kind: str
    ranks: int
    bytes: int
    time_s: float

    @property
    def key(self) -> tuple[str, int, int]:
        """The same for samples that differ by their times only."""
        return self.kind, self.ranks, self.bytes


@dataclass(frozen=True)
class PlanSample:
    """A plan of a model: the inputs of its prediction, and the measured time of its step.

    ``ops`` are its traced nodes. ``predicted_bytes`` and ``measured_bytes`` are the memory of a
    rank's tensors; ``predicted_process_bytes`` and ``process_bytes`` are the memory of its process
    in a job of its own. Figures that were not measured are ``None``.
    """

    model: MeasuredModel
    name: str
    step: PlannedStep
    measured_s: float
    ops: Sequence[OpSample]
    predicted_bytes: int | None = None
    measured_bytes: int | None = None
    predicted_process_bytes: int | None = None
    process_bytes: int | None = None

    @property
    def time_s(self) -> float:
        """The time of the step, under the name that other samples use."""
        return self.measured_s


def fastest(samples: Iterable[_S], key: Callable[[_S], object]) -> list[_S]:
    """Return the fastest sample of each key, in the order of the keys."""
    found: dict[object, _S] = {}
    for sample in samples:
        known = found.setdefault(key(sample), sample)
        if sample.time_s < known.time_s:
            found[key(sample)] = sample
    return list(found.values())


def merge_equal(samples: Iterable[OpSample]) -> list[OpSample]:
    """Merge samples of the same work and context into one sample with their median time.

    The median limits the effect of nodes that other work on the machine slowed.
    """
    groups: dict[tuple[Work, Context], list[OpSample]] = defaultdict(list)
    for sample in samples:
        groups[sample.work, sample.context].append(sample)
    merged = []
    for (work, context), own in groups.items():
        times_s = [sample.time_s for sample in own for _ in range(sample.count)]
        merged.append(OpSample(work, context, float(np.median(times_s)), len(times_s)))
    return merged


@dataclass(frozen=True)
class Peak:
    """The rate of the fastest product of a type, and the median rate relative to it."""

    flop_per_s: float
    efficiency: float


@dataclass(frozen=True)
class Basics:
    """Figures of a rank that depend on no model, while all ranks of the machine do the same.

    ``process`` is the memory of its process, ``overlap`` the cost of overlapping collectives.
    """

    floor: Floor
    peaks: Mapping[str, Peak]
    bandwidth_bytes_per_s: float
    capacity_bytes: int
    process: Process | None = None
    overlap: Overlap | None = None

    def merge(self, other: Basics) -> Basics:
        """Return the best figures of both, as other work on the machine can only slow it down."""
        faster = min(self.floor, other.floor, key=lambda floor: floor.node_s)
        peaks = {
            dtype: max(
                (own.peaks[dtype] for own in (self, other) if dtype in own.peaks),
                key=lambda peak: peak.flop_per_s,
            )
            for dtype in sorted({*self.peaks, *other.peaks})
        }
        bandwidth = max(self.bandwidth_bytes_per_s, other.bandwidth_bytes_per_s)
        both = [own.overlap for own in (self, other) if own.overlap is not None]
        least = min(both, key=lambda own: (own.share, own.start_s), default=None)
        return Basics(faster, peaks, bandwidth, other.capacity_bytes, other.process, least)


@dataclass
class Measurements:
    """All measurements of a machine; ``common`` are operators in graphs of their own."""

    machine: Machine
    basics: Basics
    common: list[OpSample] = field(default_factory=list)
    collectives: list[CollectiveSample] = field(default_factory=list)
    plans: list[PlanSample] = field(default_factory=list)

    def add(self, plan: PlanSample) -> None:
        """Add a plan, or replace a slower run of the same plan."""
        self.plans = fastest([*self.plans, plan], lambda own: (own.model, own.step))

    def merge(self, other: Measurements) -> Measurements:
        """Return the measurements of both, of the same kind of machine; of equal samples the
        faster."""
        return Measurements(
            self.machine,
            self.basics.merge(other.basics),
            fastest([*self.common, *other.common], lambda own: (own.work, own.context)),
            fastest([*self.collectives, *other.collectives], lambda own: own.key),
            fastest([*self.plans, *other.plans], lambda own: (own.model, own.step)),
        )
