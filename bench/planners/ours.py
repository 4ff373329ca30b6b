"""Our plans from Sailor's profiles, in the words that its simulator can judge.

Stages have equal tensor and data degrees and run 1F1B; unlike GPUs are groups of stages, in every
order. Layers and links have the times of the profiles. From these, `compiler/stages` has the cuts,
the schedule and its execution. The system is PyTorch with DeepSpeed as Sailor ran it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from planners.profiles import Layer, Profiles
from tensoropt.compiler.stages.cuts import cut_evenly, cut_within
from tensoropt.compiler.stages.families import FAMILIES, generate
from tensoropt.compiler.stages.order import Floats
from tensoropt.runtime.stages.execution import ChunkCost, execute

__all__ = ["Degrees", "Step", "degrees_of", "fastest_step", "steps_of"]

_FAMILY = FAMILIES["1f1b"]
_PARAMETER_BYTES = 4 + 4 + 8 + 4 + 4  # weight, gradient, two moments, buffers to exchange and copy
_GRADIENT_BYTES = 4
_BUCKET_BYTES = 500_000_000


@dataclass(frozen=True)
class Degrees:
    """Degrees of a step: GPUs of a tensor group, replicas, and micro-batches.

    ``groups`` has the kinds of GPU in the order of their stages, and how many stages each has.
    """

    groups: tuple[tuple[str, int], ...]
    tensor: int
    data: int
    micro_batch: int
    micro_batches: int

    @cached_property
    def gpus(self) -> list[str]:
        """The kind of GPU of each stage."""
        return [gpu for gpu, stages in self.groups for _ in range(stages)]

    @property
    def stages(self) -> int:
        return len(self.gpus)

    @property
    def rest_bytes(self) -> int:
        """The memory of a process that is not of tensors."""
        return 2_000_000_000 if self.tensor == 1 else 3_000_000_000

    def kept_micro_batches(self, stage: int) -> int:
        """Return the most micro-batches with activations that 1F1B allows on a stage."""
        return min(_FAMILY.passes(stage, self.stages, 1), self.micro_batches)


@dataclass(frozen=True)
class Step:
    """A training step: its degrees, and the first layer of each stage but the first."""

    profiles: Profiles
    degrees: Degrees
    cuts: tuple[int, ...]

    @cached_property
    def stages(self) -> list[Sequence[Layer]]:
        """The layers of each stage on its kind of GPU."""
        own = self.degrees
        known = [self.profiles.layers(gpu, own.tensor, own.micro_batch) for gpu in own.gpus]
        places = itertools.pairwise((0, *self.cuts, len(known[0])))
        return [layers[a:b] for layers, (a, b) in zip(known, places, strict=True)]

    @cached_property
    def time_s(self) -> float:
        """The time of the step: of the stage that ends last."""
        own = self.degrees
        schedule = generate(_FAMILY, own.stages, own.micro_batches, self._costs).schedule
        ends_s = execute(schedule, self._costs).ends_s
        return max(ends[-1] + once_s for ends, once_s in zip(ends_s, self._once_s, strict=True))

    @cached_property
    def least_s(self) -> float:
        """A lower bound on the time: a stage has the forward passes before it, and its own work."""
        costs, count = self._costs, self.degrees.micro_batches
        begin_s = itertools.accumulate((own.forward_s for own in costs), initial=0.0)
        work_s = [count * (own.forward_s + own.backward_s) for own in costs]
        return max(map(sum, zip(begin_s, work_s, self._once_s, strict=False)))

    @cached_property
    def stage_bytes(self) -> list[int]:
        """The memory of each stage, with all micro-batches that 1F1B may keep there."""
        found = []
        for stage, layers in enumerate(self.stages):
            static = sum(layer.parameters for layer in layers) * _PARAMETER_BYTES
            kept = self.degrees.kept_micro_batches(stage) * self._costs[stage].kept_bytes
            found.append(static + kept + self.degrees.rest_bytes)
        return found

    @property
    def fits(self) -> bool:
        """True if each stage fits in the memory of its GPUs."""
        kinds = self.profiles.kinds
        pairs = zip(self.stage_bytes, self.degrees.gpus, strict=True)
        return all(size <= kinds[gpu].capacity_bytes for size, gpu in pairs)

    def plan(self) -> dict[str, Any]:
        """Return the plan as Sailor's simulator reads it."""
        own, profiles = self.degrees, self.profiles
        layers = sum(map(len, self.stages))
        places = itertools.pairwise((0, *self.cuts, layers))
        machines = [(gpu, profiles.kinds[gpu].gpus_per_node, profiles.zone) for gpu in own.gpus]
        pipeline = {
            "num_stages": own.stages,
            "layers_per_stage": [[*range(*place)] for place in places],
            "tmp_per_stage": [[([machine], own.tensor)] * own.data for machine in machines],
            "dp": [own.data] * own.stages,
        }
        return {"pipeline_list": [pipeline], "mbs": own.micro_batch}

    @cached_property
    def _costs(self) -> list[ChunkCost]:
        return [self._cost(stage) for stage in range(self.degrees.stages)]

    def _cost(self, stage: int) -> ChunkCost:
        """Return the cost of a stage, which waits while it sends."""
        layers = self.stages[stage]
        after_s = self._send_s(stage, stage + 1) if stage + 1 < self.degrees.stages else 0.0
        before_s = self._send_s(stage - 1, stage) if stage else 0.0
        return ChunkCost(
            sum(layer.forward_s for layer in layers) + after_s,
            sum(layer.backward_s for layer in layers) + before_s,
            weights_s=0.0,
            kept_bytes=sum(layer.kept_bytes for layer in layers),
        )

    def _send_s(self, stage: int, other: int) -> float:
        """Return the time to send an output or its gradient between neighbours."""
        gpus, size = self.degrees.gpus, self.stages[stage][-1].output_bytes
        return self.profiles.roads[gpus[stage], gpus[other]].send_s(size, self.degrees.tensor)

    @cached_property
    def _once_s(self) -> list[float]:
        """The time of each stage to exchange gradients and to update parameters."""
        found = []
        for layers, gpu in zip(self.stages, self.degrees.gpus, strict=True):
            size = sum(layer.parameters for layer in layers) * _GRADIENT_BYTES
            road = self.profiles.roads[gpu, gpu]
            exchange_s = road.sum_s(size, self.degrees.data, _BUCKET_BYTES)
            found.append(exchange_s + max(layer.update_s for layer in layers))
        return found


def fastest_step(profiles: Profiles, gpus: Mapping[str, int]) -> Step | None:
    """Return the fastest step that fits in memory, ``None`` if none does.

    ``gpus`` has the number of each kind. Schedules are executed in the order of their lower bounds,
    until these are above the best time.
    """
    steps = (step for own in degrees_of(profiles, gpus) for step in steps_of(profiles, own))
    best: Step | None = None
    for step in sorted((own for own in steps if own.fits), key=lambda own: own.least_s):
        if best is not None and step.least_s >= best.time_s:
            break
        if best is None or step.time_s < best.time_s:
            best = step
    return best


def degrees_of(profiles: Profiles, gpus: Mapping[str, int]) -> Iterator[Degrees]:
    """Yield the degrees that use all GPUs, with measured layers and stages of equal size."""
    total = sum(gpus.values())
    for tensor, micro_batch in profiles.measured:
        most = len(profiles.layers(next(iter(gpus)), tensor, micro_batch))
        for stages in range(1, most + 1):
            size, rest = divmod(total, stages)
            if rest or size % tensor or any(count % size for count in gpus.values()):
                continue
            data = size // tensor
            count = math.ceil(profiles.batch / (data * micro_batch))
            for order in itertools.permutations(gpus):
                groups = tuple((gpu, gpus[gpu] // size) for gpu in order)
                yield Degrees(groups, tensor, data, micro_batch, count)


def steps_of(profiles: Profiles, degrees: Degrees) -> Iterator[Step]:
    """Yield the step with each of the product's cuts: equal chunks, equal ends, all within memory.

    The cuts of 1F1B. Cuts within memory are left out if there are none.
    """
    rows = {gpu: _Row.read(profiles, degrees, gpu) for gpu in dict.fromkeys(degrees.gpus)}
    own = [rows[gpu] for gpu in degrees.gpus]
    times_s, lead_s = [row.times_s for row in own], [row.lead_s for row in own]
    passing = own[0].passing
    room = [row.room(degrees.kept_micro_batches(stage)) for stage, row in enumerate(own)]
    cuts = [cut_evenly(times_s, passing), cut_evenly(times_s, passing, lead_s)]
    within = cut_within(times_s, passing, room)
    for found in dict.fromkeys(map(tuple, cuts if within is None else [*cuts, within])):
        yield Step(profiles, degrees, found)


@dataclass(frozen=True)
class _Row:
    """The layers of a model on a kind of GPU, as cuts read them: an entry for each layer.

    The lead is the time of a micro-batch before a layer, shared among all. ``passing`` are the
    bytes that pass the beginning of a layer. ``free_bytes`` is the memory that layers may take.
    """

    times_s: Floats
    lead_s: Floats
    passing: list[int]
    static_bytes: Floats
    kept_bytes: Floats
    free_bytes: int

    @classmethod
    def read(cls, profiles: Profiles, degrees: Degrees, gpu: str) -> _Row:
        layers = profiles.layers(gpu, degrees.tensor, degrees.micro_batch)
        times_s = np.array([layer.forward_s + layer.backward_s for layer in layers])
        return cls(
            times_s,
            (np.cumsum(times_s) - times_s) / degrees.micro_batches,
            [0, *(layer.output_bytes for layer in layers[:-1])],
            np.array([float(layer.parameters * _PARAMETER_BYTES) for layer in layers]),
            np.array([float(layer.kept_bytes) for layer in layers]),
            profiles.kinds[gpu].capacity_bytes - degrees.rest_bytes,
        )

    def room(self, micro_batches: int) -> Floats:
        """Return the share of the free memory that each layer takes."""
        return (self.static_bytes + micro_batches * self.kept_bytes) / self.free_bytes
