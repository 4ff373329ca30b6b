"""`search-strategies`: choose a strategy for every op."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, ClassVar

from tensoropt.compiler.layout.execution import AMPLE, GRAPH
from tensoropt.compiler.planning.memory_limit import pick
from tensoropt.compiler.planning.pinned_search import PinsCost
from tensoropt.compiler.planning.replicas import ReplicatedPoint
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.planning.staged import StagedPoint
from tensoropt.compiler.program.graph import Argument, Graph, Op, Result
from tensoropt.compiler.program.options import stored
from tensoropt.compiler.program.reader import is_node
from tensoropt.compiler.search.frontier.points import micro_batches_of, recompute_of
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.options import Interface
from tensoropt.compiler.training.alternatives import Alternative, keep_step
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys, set_mesh
from tensoropt.dialects.topt.keys import Setting
from tensoropt.passes.base import Pass
from tensoropt.passes.pins import pins_entry, write_pins
from tensoropt.passes.points import fingerprint, write_points
from tensoropt.passes.recompute import write_clones
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.plan.entries import PinsEntry
from tensoropt.runtime.stages.execution import check_schedule

if TYPE_CHECKING:
    from tensoropt.compiler.layout.rule import Strategy
    from tensoropt.compiler.search.frontier.search import FrontierPoint, FrontierResult
    from tensoropt.compiler.search.frontier.steps import Graphs

__all__ = ["SearchReport", "SearchStrategiesPass", "annotate", "settle"]


@dataclass(eq=False)
class SearchReport:
    """Progress and result of a search, for its caller.

    ``request`` is the request with the number of devices that it resolved to; ``point`` is the
    chosen point. A report that already has a point makes the pass skip the search. With
    ``prices_pins``, a second search without the pins determines ``pins_cost``, which is ``None`` if
    that took too long. ``notes`` are lines about the pins. ``begun_s`` is the start of the request
    on ``time.monotonic()``. ``graphs`` are the graphs of the module, or of a module it is a copy
    of; if missing, they are read from the module. With ``shows_all``, points above the capacity of
    the device are no error where there are no others.
    """

    say: Callable[[str], None] = lambda text: None
    begun_s: float = field(default_factory=time.monotonic)
    graphs: Graphs | None = None
    request: Request | None = None
    result: FrontierResult | None = None
    point: FrontierPoint | None = None
    prices_pins: bool = False
    shows_all: bool = False
    pins_cost: PinsCost | None = None
    notes: Sequence[str] = ()

    def add_pins(self, graphs: Graphs) -> None:
        """Add the notes about pins and their cost, after the search."""
        from tensoropt.compiler.planning.objectives import pins_cost
        from tensoropt.compiler.search.frontier.binding import unsplit_notes

        assert self.request is not None
        assert self.result is not None
        self.notes = [*unsplit_notes(next(iter(graphs.values())), self.request.read_pins)]
        if self.prices_pins and not self.result.interrupted:
            self.pins_cost = pins_cost(graphs, self.request, self.result, self.say)


@dataclass(frozen=True)
class SearchStrategiesPass(Request, Pass):
    """Searches the frontier of memory and time, and writes the plan of one point into the module.

    Adds `shard.grid @mesh`, `topt.strategy` to every op, `topt.layout` to every argument and
    result of `@main`, and a `topt.point` for each point of the frontier. Of several variants of a
    training step the chosen variant remains, as `@main`. Refuses a module with operations other
    than imported `onnx` operations, and a request that no plan fits.
    """

    name: ClassVar[str] = "search-strategies"
    summary: ClassVar[str] = "Search a layout for every tensor and annotate every op with it."
    reaches: ClassVar[str | None] = "search"

    interface: Interface = field(
        default=Interface.PIPELINE, compare=False, repr=False, metadata={"option": False}
    )
    report: SearchReport = field(
        default_factory=SearchReport, compare=False, repr=False, metadata={"option": False}
    )

    @classmethod
    def from_request(cls, request: Request, report: SearchReport) -> SearchStrategiesPass:
        """Return the pass for ``request`` that fills in ``report``."""
        options = {field.name: getattr(request, field.name) for field in fields(Request)}
        return cls(**options, report=report)

    def run(self, module: ir.Module) -> None:
        report = self.report
        if report.point is None:
            report.point = self.find_point(module)
        assert report.request is not None
        assert report.result is not None
        settle(module, report.point, report.request, report.result, report.pins_cost)

    def find_point(self, module: ir.Module) -> FrontierPoint:
        """Return the picked point of the frontier of ``module``, which is not changed."""
        from tensoropt.compiler.planning.objectives import search
        from tensoropt.compiler.search.frontier.steps import read_graphs

        report = self.report
        graphs = read_graphs(module) if report.graphs is None else report.graphs
        report.request, report.result = search(graphs, self, report.say, report.begun_s)
        if report.request.read_pins:
            report.add_pins(graphs)
        if report.result.interrupted:
            raise KeyboardInterrupt
        points, request = report.result.points, report.request
        if report.shows_all and all(point.is_above_capacity for point in points):
            return points[0]
        return pick(points, request, request.picked)


def settle(
    module: ir.Module,
    point: FrontierPoint,
    request: Request,
    result: FrontierResult,
    pins_cost: PinsCost | None = None,
) -> None:
    """Write ``point`` of ``result`` into the ``module`` that was searched with ``request``.

    ``pins_cost`` is the cost of its pins, if known. With several stages, the operations get their
    chunks and the module a schedule; with replicas, it gets their numbers of micro-batches. The
    module has then passed the search phase.
    """
    staged = keys.PLACES, keys.SCHEDULE, keys.STAGE_DEVICES, keys.PIPELINE
    for key in (keys.OVERLAP, keys.LAUNCH, *staged, keys.REPLICAS, keys.REPLICA_DEVICES):
        key.remove(module.operation.attributes)
    keep_step(module, Alternative(recompute_of(point) or "", micro_batches_of(point) or 1))
    write_clones(module, point.tables.graph)
    annotate(module, point, request.device)
    if isinstance(point, StagedPoint):
        write_chunks(module, point)
    if isinstance(point, ReplicatedPoint):
        _write_replicas(module, point)
    with module.context:
        if request.overlap == "off" or _is_on_unlike_devices(point):
            keys.OVERLAP.set(module.operation.attributes, "off")
        if request.launch == GRAPH:
            keys.LAUNCH.set(module.operation.attributes, request.launch)
    search = {"name": request.found_by, "seed": request.used_seed, "epsilon": result.epsilon}
    record(module, search, result.points, point.index, pins_entry(request, pins_cost))
    with module.context:
        keys.PASSED.set(module.operation.attributes, "search")


def record(
    module: ir.Module,
    search: Mapping[str, Setting | None],
    points: Sequence[FrontierPoint],
    chosen: int,
    pins: PinsEntry | None = None,
) -> None:
    """Write the search that found the strategies of ``module``, its ``pins`` and its frontier."""
    with module.context, ir.Location.unknown():
        settings = {name: value for name, value in search.items() if value is not None}
        settings["strategies"] = fingerprint(module)
        keys.SEARCH.set(module.operation.attributes, settings)
        write_pins(module, pins)
        write_points(module, points, chosen)


def annotate(module: ir.Module, point: FrontierPoint, device: str) -> None:
    """Write the mesh and the strategies of ``point`` into the searched ``module`` or a copy of it.

    ``device`` names the device description of the search, which later passes use for costs too.
    """
    graph = point.tables.graph
    chosen = (point.strategies[i] for i, node in enumerate(graph.nodes) if isinstance(node, Op))
    ops = (op for op in onnx.function(module).regions[0].blocks[0] if is_node(op.operation))
    with module.context, ir.Location.unknown():
        set_mesh(module, Mesh(point.mesh))
        keys.DEVICE.set(module.operation.attributes, device)
        if point.tables.has_ample_memory:
            keys.OVERLAP.set(module.operation.attributes, AMPLE)
        for op, strategy in zip(ops, chosen, strict=True):
            sides = list(strategy.operands), list(strategy.results)
            keys.STRATEGY.set(op.operation.attributes, sides)
        _annotate_signature(module, graph, point.strategies)


def write_chunks(module: ir.Module, point: StagedPoint) -> None:
    """Write the chunk of each operation of ``point``, and its schedule."""
    graph, made = point.tables.graph, point.pipeline
    assert made is not None
    check_schedule(made.schedule, trains=graph.trains)
    numbers = (made.numbers[i] for i, node in enumerate(graph.nodes) if isinstance(node, Op))
    ops = (op for op in onnx.function(module).regions[0].blocks[0] if is_node(op.operation))
    with module.context, ir.Location.unknown():
        keys.PLACES.set(module.operation.attributes, [*made.schedule.places])
        keys.SCHEDULE.set(module.operation.attributes, made.schedule.texts)
        if point.stage_devices:
            keys.STAGE_DEVICES.set(module.operation.attributes, point.stage_devices)
        times = _times(point)
        if made.is_stream:
            times |= {"latency_s": point.latency_s, "interval_s": point.interval_s}
        keys.PIPELINE.set(module.operation.attributes, times)
        for op, number in zip(ops, numbers, strict=True):
            if number is not None:
                keys.CHUNK.set(op.operation.attributes, number)
    _read_originals(module)


def _write_replicas(module: ir.Module, point: ReplicatedPoint) -> None:
    """Write the device and the micro-batches of each replica of ``point``."""
    rows, attributes = point.replica_rows, module.operation.attributes
    with module.context, ir.Location.unknown():
        keys.REPLICAS.set(attributes, [row.micro_batches for row in rows])
        keys.REPLICA_DEVICES.set(attributes, [row.device for row in rows])
        keys.PIPELINE.set(attributes, _times(point))


def _is_on_unlike_devices(point: FrontierPoint) -> bool:
    """Return whether stages or replicas have unlike devices, with times of their own."""
    return isinstance(point, ReplicatedPoint) or (
        isinstance(point, StagedPoint) and bool(point.stage_devices)
    )


def _times(point: FrontierPoint) -> dict[str, Setting]:
    """Return the times of a program on several meshes, which its cost alone does not have."""
    names = ("time_s", "compute_s", "communication_s", "hidden_s")
    return {name: getattr(point, name) for name in names}


def _read_originals(module: ir.Module) -> None:
    """Let operations read original values of earlier chunks instead of recomputed ones.

    The chunk has the original, as its forward pass reads it. Recomputation in an earlier chunk runs
    after the backward pass of a later one.
    """
    ops = [op.operation for op in onnx.function(module).regions[0].blocks[0]]
    by_number = {keys.ID.of(op.attributes): op for op in ops if keys.ID.on(op.attributes)}
    for op in ops:
        chunk = keys.CHUNK.get(op.attributes)
        if chunk is not None and onnx.phase(op) != "forward":
            for number, value in enumerate(op.operands):
                if not (number and onnx.is_barrier(op)):
                    op.operands[number] = _original(value, chunk, by_number)


def _original(value: ir.Value, chunk: int, by_number: Mapping[int, ir.Operation]) -> ir.Value:
    """Return ``value``, or the original if it is recomputed in an earlier chunk than ``chunk``."""
    made = onnx.owner(value)
    while made is not None and onnx.phase(made) == "recompute":
        if keys.CHUNK.get(made.attributes, chunk) >= chunk:
            break
        if onnx.is_barrier(made):
            value = made.operands[0]
        else:
            original = by_number[keys.REPEATS.of(made.attributes)]
            value = original.results[ir.OpResult(value).result_number]
        made = onnx.owner(value)
    return value


def _annotate_signature(
    module: ir.Module, graph: Graph, strategies: Mapping[int, Strategy]
) -> None:
    function = onnx.function(module)
    for key, kind in (("arg_attrs", Argument), ("res_attrs", Result)):
        layouts = [
            _layout(graph, index, strategies)
            for index, node in enumerate(graph.nodes)
            if isinstance(node, kind)
        ]
        if layouts:
            dictionaries = [{a.name: a.attr for a in d} for d in onnx.carried(function, key)]
            for attributes, layout in zip(dictionaries, layouts, strict=True):
                attributes |= keys.LAYOUT.item(layout)
            function.attributes[key] = ir.ArrayAttr.get([*map(ir.DictAttr.get, dictionaries)])


def _layout(graph: Graph, index: int, strategies: Mapping[int, Strategy]) -> Layout:
    """Return the layout of an argument or result; a private parameter's follows from its use."""
    node = graph.nodes[index]
    for value in graph.storage.private.intersection(node.results):
        ((consumer, operand),) = graph.values[value].uses
        return stored(strategies[consumer].operands[operand])
    chosen = strategies[index]
    side = chosen.results if isinstance(node, Argument) else chosen.operands
    if not side:
        raise UserError(f"{node.name}: has no layout, expected one from the search")
    return side[0]
