"""Streams of inputs in inference: each passes through the stages, which work at the same time."""

from __future__ import annotations

from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.stages.chunk_costs import NodeTimes
from tensoropt.compiler.stages.chunks import stream_cuts
from tensoropt.compiler.stages.families import STREAM
from tensoropt.compiler.stages.pipeline import Pipeline, link_of
from tensoropt.runtime.stages.execution import ChunkCost, execute
from tensoropt.runtime.stages.schedule import Schedule

__all__ = ["stream_of"]


def stream_of(point: FrontierPoint, stages: int) -> Pipeline:
    """Return the pipeline of a stream: its slowest stage or transfer is about the fastest.

    An input takes the time of all stages and of the transfers between them. Results follow each
    other in the time of the slowest stage or transfer, as values are sent while the next input is
    computed. A stage has its parameters, the temporary tensors, counted whole, and the values of
    one earlier input that are still being sent. Linear in the operands of the program.
    """
    device, times = point.tables.device, NodeTimes(point)
    link = link_of(device, stages, point.mesh)
    cuts = stream_cuts(times, stages, link)
    step, last = times.step(cuts), stages - 1
    costs = [
        ChunkCost(
            own.forward_s + device.step_overhead_s,
            sent_s=0.0 if number == last else link.send_s(own.sent_bytes),
            kept_bytes=own.sent_bytes,
        )
        for number, own in enumerate(step.chunks)
    ]
    schedule = Schedule.of_stream(stages)
    execution = execute(schedule, costs)
    static = [own.static_bytes for own in step.chunks]
    sent = [own.sent_bytes for own in step.chunks]
    return Pipeline(
        point,
        STREAM,
        cuts,
        0.0,
        schedule,
        costs,
        execution,
        execution.time_s,
        max(max(own.forward_s, own.sent_s) for own in costs),
        [sum(own) + times.transient_bytes for own in zip(static, sent, strict=True)],
        static,
        sent,
    )
