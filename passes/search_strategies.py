"""`search-strategies`: choose a strategy for every op."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, ClassVar

from tensoropt.compiler.layout.collective import AMPLE
from tensoropt.compiler.layout.layout import Layout
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.search.frontier.pinned_search import PinsCost
from tensoropt.compiler.search.frontier.points import micro_batches_of, pick_point, recompute_of
from tensoropt.compiler.search.frontier.request import Request, fitting
from tensoropt.compiler.search.problem.graph import Graph
from tensoropt.compiler.search.problem.options import stored
from tensoropt.compiler.search.problem.reader import is_node
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.alternatives import Way, keep_alternative
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys, set_mesh
from tensoropt.dialects.topt.keys import Setting
from tensoropt.passes.base import Pass
from tensoropt.passes.pins import pins_entry, write_pins
from tensoropt.passes.points import fingerprint, write_points
from tensoropt.runtime.plan.entries import PinsEntry

if TYPE_CHECKING:
    from tensoropt.compiler.layout.rule import Strategy
    from tensoropt.compiler.search.frontier.search import FrontierPoint, FrontierResult
    from tensoropt.compiler.search.frontier.steps import Graphs

__all__ = ["SearchReport", "SearchStrategiesPass", "annotate", "settle"]


@dataclass(eq=False)
class SearchReport:
    """What a search tells whoever runs it: how far it is, and then what it found.

    ``request`` is the one that was answered, on the number of devices that it came to; ``point``
    the one that was taken. Where it ``prices_pins``, a second search, without them, says what they
    cost; ``pins_cost`` is ``None`` where that took too long. ``notes`` are lines on the pins.
    The person waits since ``begun_s`` on ``time.monotonic()``. With a point there is nothing left
    to search. ``graphs`` are those of the module, or of one that it is a copy of; without them they
    are read.
    """

    say: Callable[[str], None] = lambda text: None
    begun_s: float = field(default_factory=time.monotonic)
    graphs: Graphs | None = None
    request: Request | None = None
    result: FrontierResult | None = None
    point: FrontierPoint | None = None
    prices_pins: bool = False
    pins_cost: PinsCost | None = None
    notes: Sequence[str] = ()

    def pinned(self, graphs: Graphs) -> None:
        """Take down what there is to say of the pins, now that the search has its points."""
        from tensoropt.compiler.search.frontier.binding import unsplit_notes
        from tensoropt.compiler.search.frontier.objectives import pins_cost

        assert self.request is not None
        assert self.result is not None
        self.notes = [*unsplit_notes(next(iter(graphs.values())), self.request.read_pins)]
        if self.prices_pins and not self.result.interrupted:
            self.pins_cost = pins_cost(graphs, self.request, self.result, self.say)


@dataclass(frozen=True)
class SearchStrategiesPass(Request, Pass):
    """Searches the frontier of memory and time, and writes the plan of one point into the module.

    `devices` are searched in every factorisation, unless `mesh`, such as 2x4, is given. `device`
    names a device description, or is the path of one; `memory`, such as 16GiB, is what one may
    use. `objective` is time, memory, or devices: the fewest of them on which something fits.
    `epsilon` is the slack of the frontier, 0 for none, `search-time` the seconds that the search
    may take; without both there is an answer after about ten. `search-memory` is what it may take
    meanwhile, such as 4GiB. `strategies` is a plan.json whose strategies are taken in place of a
    search. `pick` is the index of a point, fastest, leanest or knee. `overlap` is auto, or off to
    let no collective run beside operators.

    Adds `shard.grid @mesh`, `topt.strategy` to every op, `topt.layout` to every argument and
    result of `@main`, and a `topt.point` for each point of the frontier. Of several ways to build a
    training step the chosen one is left, as `@main`. Refuses a module that holds anything but
    imported `onnx` operations, and what nothing fits.
    """

    name: ClassVar[str] = "search-strategies"
    summary: ClassVar[str] = "Search a layout for every tensor and annotate every op with it."
    reaches: ClassVar[str | None] = "search"

    report: SearchReport = field(
        default_factory=SearchReport, compare=False, repr=False, metadata={"option": False}
    )

    @classmethod
    def of(cls, request: Request, report: SearchReport) -> SearchStrategiesPass:
        """Return the pass that does what ``request`` asks for, and tells ``report``."""
        asked = {field.name: getattr(request, field.name) for field in fields(Request)}
        return cls(**asked, report=report)

    def run(self, module: ir.Module) -> None:
        told = self.report
        if told.point is None:
            told.point = self._search(module)
        assert told.request is not None
        assert told.result is not None
        settle(module, told.point, told.request, told.result, told.pins_cost)

    def _search(self, module: ir.Module) -> FrontierPoint:
        from tensoropt.compiler.search.frontier.objectives import search
        from tensoropt.compiler.search.frontier.steps import read_graphs

        told = self.report
        graphs = read_graphs(module) if told.graphs is None else told.graphs
        told.request, told.result = search(graphs, self, told.say, told.begun_s)
        if told.request.read_pins:
            told.pinned(graphs)
        if told.result.interrupted:
            raise KeyboardInterrupt
        return pick_point(fitting(told.result.points, told.request), told.request.picked)


def settle(
    module: ir.Module,
    point: FrontierPoint,
    request: Request,
    result: FrontierResult,
    pins_cost: PinsCost | None = None,
) -> None:
    """Write ``point``, one of ``result``, into the ``module`` that was searched as ``request``.

    ``pins_cost`` is what its pins cost, where that is known. The module has then passed the search.
    """
    keys.OVERLAP.remove(module.operation.attributes)
    keep_alternative(module, Way(recompute_of(point) or "", micro_batches_of(point) or 1))
    annotate(module, point, request.device)
    with module.context:
        if request.overlap == "off":
            keys.OVERLAP.set(module.operation.attributes, request.overlap)
    said = {"name": request.found_by, "seed": request.used_seed, "epsilon": result.epsilon}
    record(module, said, result.points, point.index, pins_entry(request, pins_cost))
    with module.context:
        keys.PASSED.set(module.operation.attributes, "search")


def record(
    module: ir.Module,
    said: Mapping[str, Setting | None],
    points: Sequence[FrontierPoint],
    chosen: int,
    pins: PinsEntry | None = None,
) -> None:
    """Write what found the strategies of ``module``, and the frontier that they are a point of.

    ``pins`` is what the search had to heed.
    """
    with module.context, ir.Location.unknown():
        settings = {name: value for name, value in said.items() if value is not None}
        settings["strategies"] = fingerprint(module)
        keys.SEARCH.set(module.operation.attributes, settings)
        write_pins(module, pins)
        write_points(module, points, chosen)


def annotate(module: ir.Module, point: FrontierPoint, device: str) -> None:
    """Write the mesh and the strategies of ``point`` into the ``module`` they were searched for, or
    a copy of it.

    ``device`` names the device description of the search, so that later passes cost with the same.
    """
    graph = point.tables.graph
    chosen = (point.strategies[i] for i, node in enumerate(graph.nodes) if node.kind == "op")
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


def _annotate_signature(
    module: ir.Module, graph: Graph, strategies: Mapping[int, Strategy]
) -> None:
    function = onnx.function(module)
    for key, kind in (("arg_attrs", "argument"), ("res_attrs", "result")):
        layouts = [
            _layout(graph, index, strategies)
            for index, node in enumerate(graph.nodes)
            if node.kind == kind
        ]
        if layouts:
            held = [dict(_items(d)) for d in onnx.carried(function, key)]
            for attributes, layout in zip(held, layouts, strict=True):
                attributes |= keys.LAYOUT.item(layout)
            function.attributes[key] = ir.ArrayAttr.get([ir.DictAttr.get(d) for d in held])


def _items(attributes: ir.DictAttr) -> list[tuple[str, ir.Attribute]]:
    return [(item.name, item.attr) for item in attributes]


def _layout(graph: Graph, index: int, strategies: Mapping[int, Strategy]) -> Layout:
    """Return the layout of an argument or result; a private parameter lies as its use wants it."""
    node = graph.nodes[index]
    if node.private:
        consumer, operand = graph.values[node.results[0]].uses[0]
        return stored(strategies[consumer].operands[operand])
    chosen = strategies[index]
    side = chosen.results if node.kind == "argument" else chosen.operands
    if not side:
        raise UserError(f"{node.name}: has no layout, expected one from the search")
    return side[0]
