"""Pipelines of a training step: cuts between layers, and the time and the memory of a schedule."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.compiler.cost.device import Link
from tensoropt.compiler.stages.families import Family, generate
from tensoropt.compiler.stages.layer_costs import LayerCost, StepCost
from tensoropt.runtime.stages.execution import ChunkCost, Execution, execute
from tensoropt.runtime.stages.schedule import Schedule

__all__ = ["Pipeline", "cut_evenly", "pipeline_of"]


@dataclass(frozen=True)
class Pipeline:
    """A training step in stages.

    ``cuts`` has the first layer of each chunk. ``execution`` leaves out the work that a stage does
    once per step, which ``time_s`` includes. ``memory_bytes`` is that of the fullest stage.
    """

    cuts: tuple[int, ...]
    schedule: Schedule
    execution: Execution
    time_s: float
    memory_bytes: int


def pipeline_of(
    step: StepCost, stages: int, micro_batches: int, family: Family, link: Link
) -> Pipeline | None:
    """Return the pipeline of a step, ``None`` if it has fewer layers than chunks.

    Neighbouring chunks on different stages communicate over ``link``. ``O(n log n)`` in the tasks
    of all stages and in the layers.
    """
    count = stages * family.chunks
    if len(step.layers) < count:
        return None
    cuts = cut_evenly([layer.work_s for layer in step.layers], count)
    ends = (*cuts[1:], len(step.layers))
    chunks = [LayerCost.sum(step.layers[a:b]) for a, b in zip(cuts, ends, strict=True)]
    places = family.place(stages, family.chunks)
    costs = [
        _chunk_cost(chunk, link, sends=number + 1 < count and places[number] != places[number + 1])
        for number, chunk in enumerate(chunks)
    ]
    schedule = generate(family, stages, micro_batches, costs)
    execution = execute(schedule, costs)
    time_s, memory_bytes = 0.0, 0
    for stage in range(stages):
        own = [chunk for chunk, place in zip(chunks, places, strict=True) if place == stage]
        end_s = execution.ends_s[stage][-1] + sum(chunk.once_s for chunk in own)
        time_s = max(time_s, end_s)
        static_bytes = sum(chunk.static_bytes for chunk in own)
        memory_bytes = max(memory_bytes, static_bytes + execution.kept_bytes[stage])
    return Pipeline(cuts, schedule, execution, time_s, memory_bytes + step.working_bytes)


def _chunk_cost(chunk: LayerCost, link: Link, *, sends: bool) -> ChunkCost:
    sent_s = link.latency_s + chunk.sent_bytes / link.bandwidth_bytes_per_s if sends else 0.0
    return ChunkCost(
        chunk.forward_s,
        chunk.backward_s,
        chunk.weights_s,
        sent_s,
        chunk.kept_bytes,
        chunk.weights_bytes,
    )


def cut_evenly(work: Sequence[float], chunks: int) -> tuple[int, ...]:
    """Return the first layer of each of ``chunks`` runs of layers with the least largest sum.

    Each run has at least one layer. Bisects over the sums of runs: ``O(n log n)``.
    """
    sums = [0.0, *itertools.accumulate(work)]
    low, high = max(max(work, default=0.0), sums[-1] / chunks), sums[-1]
    best = _filled(work, chunks, high)
    assert best is not None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        found = _filled(work, chunks, middle)
        if found is None:
            low = middle
        else:
            best, high = found, middle
    return best


_HALVINGS = 40


def _filled(work: Sequence[float], chunks: int, most: float) -> tuple[int, ...] | None:
    """Return runs with sums of at most ``most``, ``None`` if they do not hold all layers.

    Every run takes as many layers as fit, but leaves one for each run that follows.
    """
    starts, total = [0], 0.0
    for layer, own in enumerate(work):
        left = chunks - len(starts)
        full = total + own > most * (1 + 1e-12) or len(work) - layer == left
        if layer > starts[-1] and full:
            if not left:
                return None
            starts.append(layer)
            total = 0.0
        total += own
    return tuple(starts) if len(starts) == chunks and total <= most * (1 + 1e-12) else None
