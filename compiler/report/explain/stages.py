"""Explanation of a program in stages: the tasks of each stage, its memory, and its transfers."""

from __future__ import annotations

from tensoropt.compiler.planning.staged import StagedPoint
from tensoropt.compiler.report.explanation import StagedStep, StageRow, TaskEntry
from tensoropt.compiler.search.frontier.points import Point
from tensoropt.compiler.stages.pipeline import Pipeline
from tensoropt.runtime.stages.execution import execute
from tensoropt.runtime.stages.schedule import Schedule

__all__ = ["staged_step"]

_SHOWN = 2
"""Inputs of a stream for each stage, which the timeline shows."""


def staged_step(point: Point) -> StagedStep | None:
    """Return the stages of a point, ``None`` without any. Linear in the tasks of all stages."""
    pipeline = point.pipeline if isinstance(point, StagedPoint) else None
    if pipeline is None:
        return None
    schedule, execution = pipeline.schedule, pipeline.execution
    if pipeline.is_stream:
        schedule = Schedule.of_stream(pipeline.stages, _SHOWN * pipeline.stages)
        execution = execute(schedule, pipeline.costs)
    tasks = tuple(
        TaskEntry(stage, *task, start_s, end_s)
        for stage, order in enumerate(schedule.orders)
        for task, start_s, end_s in zip(
            order, execution.starts_s[stage], execution.ends_s[stage], strict=True
        )
    )
    rows = tuple(_row(pipeline, stage) for stage in range(pipeline.stages))
    return StagedStep(
        pipeline.family,
        schedule.micro_batches,
        pipeline.idle_share,
        rows,
        tasks,
        pipeline.time_s if pipeline.is_stream else None,
        pipeline.interval_s if pipeline.is_stream else None,
    )


def _row(pipeline: Pipeline, stage: int) -> StageRow:
    places, execution = pipeline.schedule.places, pipeline.execution
    own = tuple(chunk for chunk, place in enumerate(places) if place == stage)
    # Values go forward to the chunks that read them, and in training their gradients back.
    ends = [
        (source, {places[source], places[reader]} - {stage})
        for reader, sources in enumerate(pipeline.schedule.reads)
        for source in sources
        if stage in (places[source], places[reader]) and places[source] != places[reader]
        if places[source] == stage or not pipeline.is_stream
    ]
    busy_s = execution.time_s - execution.idle_s(stage)
    whole_s = pipeline.interval_s if pipeline.is_stream else execution.time_s
    return StageRow(
        own,
        busy_s,
        whole_s - busy_s,
        pipeline.stage_bytes[stage],
        pipeline.static_bytes_of[stage],
        pipeline.sent_bytes[stage] if pipeline.is_stream else execution.kept_bytes[stage],
        sum(pipeline.sent_bytes[source] for source, _ in ends),
        tuple(sorted({other for _, others in ends for other in others})),
        pipeline.devices.devices[stage].name if pipeline.devices.are_unlike else None,
    )
