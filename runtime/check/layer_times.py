"""Measured time of each layer of a plan, next to the predicted time."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.runtime.check.results import LayerTime
from tensoropt.runtime.check.trace import Times, kernel_times_s, merge_ranks
from tensoropt.runtime.check.values import row_of
from tensoropt.runtime.device.provider import Provider
from tensoropt.runtime.ops import library
from tensoropt.runtime.plan.costs import NodeCost, read_costs
from tensoropt.runtime.plan.layers import row_layers
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.session.inputs import Inputs
from tensoropt.runtime.session.ranks import make_on_all, share_of_cores
from tensoropt.runtime.session.session import rank_session
from tensoropt.runtime.support.collectives import WAITS
from tensoropt.runtime.support.job import Job

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["layer_times"]

_WARM_UP, _RUNS = 3, 20
_BLOCKED = re.compile(r"(.*)_nchwc(_token_\d+)?")
"""A node in a blocked image layout, named after the value that it computes."""
HELD = "(held by transfers)"
"""Time spent waiting for collectives that overlap other nodes."""
OTHERS = "(not of one node)"
"""Nodes that ONNX Runtime inserts, or fuses from nodes of several layers."""


def layer_times(
    job: Job, plan: Plan, inputs: Inputs, comm: MPI.Comm, provider: Provider
) -> tuple[LayerTime, ...]:
    """Return the times of the layers on rank 0; nothing on other ranks and on devices.

    Every rank calls this and runs the optimised graph a few times while ONNX Runtime traces the
    nodes. A collective counts with the time of the rank that waits least. The full time of an
    overlapped collective counts for its layer; the time that other nodes wait for its end has a
    line of its own.
    """
    if provider.name != "cpu":
        return ()  # ONNX Runtime's trace does not cover the whole kernel on a device
    with tempfile.TemporaryDirectory(prefix="tensoropt-trace-") as folder:
        graph, trace = plan.graph(comm.rank), Path(folder, f"rank{comm.rank}")
        threads, transient_bytes = job.threads or share_of_cores(comm), plan.transient_bytes
        make = partial(rank_session, graph, threads, trace, transient_bytes=transient_bytes)
        session, _ = make_on_all(comm, make)
        if session is None:
            return ()
        for name in inputs.tensors:
            session.feed(name, inputs.part(name, comm.rank))
        library.record(True)
        for _ in range(_WARM_UP + _RUNS):
            comm.Barrier()
            session.run()
        transfers = library.recorded_times()
        library.record(False)
        ranks = comm.gather(kernel_times_s(session.end_trace(), _WARM_UP, transfers))
        ran = Path(folder, "rank0.onnx")  # the graph after ONNX Runtime's optimisations
        return () if ranks is None else tuple(_by_layer(plan, ranks, ran))


def _by_layer(plan: Plan, ranks: list[Times], ran: Path) -> list[LayerTime]:
    costs = read_costs(plan)
    layers = _layers(plan, costs)
    names, made = frozenset(layers), _map_makers(plan, ran)
    measured: dict[str, float] = {}
    for name, time_s in merge_ranks(ranks).items():
        row = row_of(name, names) or row_of(made.get(name, ""), names)
        layer = OTHERS if row is None else layers[row]
        if ranks[0][name][0] in WAITS:
            layer = HELD
        measured[layer] = measured.get(layer, 0.0) + time_s
    predicted: dict[str, float] = {}
    for cost in (costs or {}).values():
        predicted[cost.layer] = predicted.get(cost.layer, 0.0) + cost.time_s
    order = dict.fromkeys((*layers.values(), HELD, OTHERS))
    return [
        LayerTime(layer, measured.get(layer, 0.0), predicted.get(layer) if costs else None)
        for layer in order
        if layer in measured or layer in predicted
    ]


def _map_makers(plan: Plan, ran: Path) -> dict[str, str]:
    """Map each node that ONNX Runtime ran to the node of the plan that computes its result.

    For a fused node this is the last of the original nodes.
    """
    import onnx

    given, fused = (onnx.load(path, load_external_data=False) for path in (plan.graph(0), ran))
    makers = {name: node.name for node in given.graph.node for name in node.output if name}
    found = {}
    for node in fused.graph.node:
        blocked = _BLOCKED.fullmatch(node.name)
        for name in [blocked[1]] if blocked else node.output:
            if name in makers:
                found[node.name] = makers[name]
    return found


def _layers(plan: Plan, costs: Mapping[str, NodeCost] | None) -> dict[str, str]:
    """Return the layer of each node of the model."""
    if costs is not None:
        return {name: cost.layer for name, cost in costs.items()}
    rows = [row for row in plan.document["strategies"] if row["op"] != "Constant"]
    return dict(zip((row["node"] for row in rows), row_layers(rows), strict=True))
