"""Streams of inputs in inference: each passes through the stages, which work at the same time."""

from __future__ import annotations

from tensoropt.compiler.stages.chunks import stream_cuts
from tensoropt.compiler.stages.devices import StageDevices
from tensoropt.compiler.stages.families import STREAM
from tensoropt.compiler.stages.orders import Orders
from tensoropt.compiler.stages.pipeline import Pipeline
from tensoropt.runtime.stages.execution import ChunkCost
from tensoropt.runtime.stages.schedule import Schedule

__all__ = ["stream_of"]


def stream_of(devices: StageDevices) -> Pipeline:
    """Return the pipeline of a stream: its slowest stage or transfer is about the fastest.

    An input takes the time of all stages and of the transfers between them. Results follow each
    other in the time of the slowest stage or transfer, as values are sent while the next input is
    computed. A stage has its parameters and caches, the temporary tensors, counted whole, and the
    values of one earlier input that are still being sent. Linear in the operands of the program.
    """
    cuts, last = stream_cuts(devices), devices.stages - 1
    chunks, kinds = devices.costs(cuts, range(devices.stages)), devices.devices
    costs = [
        ChunkCost(
            own.forward_s + kinds[number].step_overhead_s,
            sent_s=0.0
            if number == last
            else devices.link(number, number + 1).send_s(own.sent_bytes),
            kept_bytes=own.sent_bytes,
        )
        for number, own in enumerate(chunks)
    ]
    orders = Orders.read(Schedule.of_stream(devices.stages))
    ends_s, _ = orders.run(costs)
    static = [own.static_bytes for own in chunks]
    sent = [own.sent_bytes for own in chunks]
    transient = devices.group_times[0].stream_bytes(cuts)
    return Pipeline(
        devices,
        STREAM,
        cuts,
        orders,
        costs,
        max(ends_s),
        max(max(own.forward_s, own.sent_s) for own in costs),
        [sum(own) for own in zip(static, sent, transient, strict=True)],
        static,
        sent,
        sum(own.hidden_s for own in chunks) / devices.stages,
    )
