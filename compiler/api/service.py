"""Deployments of a decoder that meet a service level, with the plans of their replicas."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from tensoropt.compiler.api.pickling import reduced
from tensoropt.compiler.api.program import Program, Say
from tensoropt.compiler.api.scaling import Scaling
from tensoropt.compiler.exporter.plan.describe import ends_of
from tensoropt.compiler.exporter.standard.cache_effect import read_effect
from tensoropt.compiler.planning.objectives import Row
from tensoropt.compiler.planning.service import (
    Deployment,
    ServiceLevel,
    StepTimes,
    best,
    frontier_of,
    loaded,
    slots_for,
    texts_tried,
)
from tensoropt.compiler.program.graph import Graph, Result
from tensoropt.compiler.report.service import ServiceReport, service_table
from tensoropt.compiler.search.frontier.pinned import chosen_frontier, number_of
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.shapes.caches import find_caches
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.api.plan import Plan
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.plan.dims import Sizes
from tensoropt.runtime.text.decoder import IDS, MASK

if TYPE_CHECKING:
    from tensoropt.compiler.planning.request import Request
    from tensoropt.compiler.search.frontier.search import FrontierPoint

__all__ = ["Service", "Sized", "find_deployments"]

_GAIN = 0.99
"""Of the time per token: twice the ranks are tried as long as they bring it below."""


Sized = Callable[[Mapping[str, Sizes]], Program]
"""Returns the program of a model with more sizes of its dimensions."""
_Planned = tuple[Program, Row]
"""A program, and its row with the plan of a replica."""


class Service(Sequence[Deployment]):
    """The deployments that none beats in devices, first token and time per token."""

    def __init__(self, report: ServiceReport, plans: Mapping[Deployment, _Planned]) -> None:
        self.report, self._plans = report, plans

    def __copy__(self) -> Service:
        return self

    def __deepcopy__(self, memo: object) -> Service:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        programs = {id(program): program for program, _ in self._plans.values()}
        return reduced(self, [*programs.values()])

    def __len__(self) -> int:
        return len(self.report.rows)

    @overload
    def __getitem__(self, index: int) -> Deployment: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Deployment]: ...
    def __getitem__(self, index: int | slice) -> Deployment | Sequence[Deployment]:
        return self.report.rows[index]

    def __repr__(self) -> str:
        return service_table(self.report).rstrip("\n")

    @property
    def best(self) -> Deployment | None:
        """The deployment of fewest devices within the limits, None if there is none."""
        return self.report.best

    def compile(self, directory: str | Path, deployment: Deployment | None = None) -> Plan:
        """Write the plan of a replica of ``deployment``, by default of `best`, and return it.

        Raises :class:`UserError` if no deployment is within the limits.
        """
        own = deployment or self.report.require_best()
        program, row = self._plans[own]
        return Scaling(own.model, program, [row])[0].fastest.compile(directory)


@dataclass(frozen=True)
class _Names:
    """The names of a decoder's open sizes; ``totals`` are of all tokens, in the mask."""

    batch: str
    tokens: str
    past: str
    totals: tuple[str, ...]

    def plan(self, batch: int, context: int) -> dict[str, Sizes]:
        """Return the sizes of a plan for steps of any number of tokens, which counts as 1."""
        return self._sizes(range(1, batch + 1), range(1, context + 1), 1)

    def step(self, batch: int, tokens: int, past: int) -> dict[str, Sizes]:
        """Return ranges of one size each: the program then has the operations of the plan's."""
        return self._sizes(_only(batch), _only(max(past, 1)), tokens) | {self.tokens: _only(tokens)}

    def _sizes(self, batch: range, past: range, tokens: int) -> dict[str, Sizes]:
        totals = range(past.start + tokens, past.stop + tokens)
        return {self.batch: batch, self.past: past, **dict.fromkeys(self.totals, totals)}


def _only(size: int) -> range:
    return range(size, size + 1)


def find_deployments(
    name: str, forms: Sequence[Sized], level: ServiceLevel, request: Request, say: Say
) -> Service:
    """Return the deployments of the model ``name`` on up to ``request.devices`` devices.

    The model may have several ``forms``. More texts than a single replica needs for the rate are
    not tried. A search per form, number of ranks and number of texts.
    """
    plans: dict[Deployment, _Planned] = {}
    for replicas in (_Replicas(sized, level, request, say) for sized in forms):
        for texts in texts_tried():
            found = dict(replicas.plan(texts))
            plans |= {own: planned for own, planned in found.items() if _is_allowed(own, request)}
            if all(own.replicas == 1 for own in found):
                break
    rows, device = frontier_of(plans), request.description
    is_gpu = device.host_launch_s is not None
    given = name, device.name, request.devices, level, rows, best(rows, level), is_gpu
    models = {plans[row][0].source.path for row in rows}
    effects = {path.name: effect for path in models if (effect := read_effect(path)) is not None}
    return Service(ServiceReport(*given, effects), plans)


class _Replicas:
    """Replicas of 1, 2, 4, ... ranks for a service level."""

    def __init__(self, sized: Sized, level: ServiceLevel, request: Request, say: Say) -> None:
        self._sized, self._level, self._request, self._say = sized, level, request, say
        self._names, part = _names(sized({})), min(level.prompt, level.part)
        self._prompt = self._graph(self._names.step(1, part, level.prompt // 2))
        self._parts = level.prompt / part

    def plan(self, texts: int) -> Iterator[tuple[Deployment, _Planned]]:
        """Yield replicas that continue ``texts``, and their plans, while more ranks are faster.

        A plan has the caches of all slots. It is then costed at the sizes of a step, and of a part
        of a prompt.
        """
        level, before_s = self._level, math.inf
        program = self._sized(self._names.plan(slots_for(texts), level.context))
        step = self._graph(self._names.step(texts, 1, level.prompt + level.answer // 2))
        for row in program.profile(self._request, lambda text: self._say(f"{texts} texts, {text}")):
            if row.point is None:
                continue
            at_step, at_prompt = (_costed(row, graph) for graph in (step, self._prompt))
            if at_step.time_s > _GAIN * before_s:
                return
            before_s = at_step.time_s
            times = StepTimes(at_step.time_s, self._parts * at_prompt.time_s)
            need = row.point.process_bytes - row.point.transient_bytes
            need += max(row.point.transient_bytes, at_prompt.transient_bytes)
            own = loaded(level, times, row.devices, texts, need)
            if own is not None:
                yield replace(own, model=program.source.path.name), (program, row)

    def _graph(self, sizes: Mapping[str, Sizes]) -> Graph:
        (graph,) = self._sized(sizes).graphs.values()
        return graph


def _is_allowed(own: Deployment, request: Request) -> bool:
    limit = request.limit_bytes
    return own.devices <= request.devices and (limit is None or own.process_bytes <= limit)


def _costed(row: Row, graph: Graph) -> FrontierPoint:
    """Return the strategies of a row's point in another ``graph`` of the same operations."""
    point, device = row.point, row.request.description
    assert point is not None, "the row has a plan"
    place = {key: index for index, key in enumerate(_keys(point.tables.graph))}
    keys, tables = _keys(graph), MeshTables(graph, Mesh(point.mesh), device)
    chosen = [point.strategies[place[keys[index]]] for index in tables.variables]
    numbers = [
        number_of(tables, index, (own.operands, own.results))
        for index, own in zip(tables.variables, chosen, strict=True)
    ]
    return chosen_frontier(tables, numbers).points[0]


def _keys(graph: Graph) -> list[tuple[str, str]]:
    """Return the kind and name of each node. Sizes may change the order of nodes, not the nodes."""
    return [
        (type(node).__name__, node.returned_as if isinstance(node, Result) else node.name)
        for node in graph.nodes
    ]


def _names(program: Program) -> _Names:
    """Return the names of the open sizes; raises :class:`UserError` for another model."""
    with program.lock:
        caches = {cache.past for cache in find_caches(program.module)[0]}
        ends = {end.name: end.shape for end in ends_of(program.module, "arg_attrs")}
    pasts = [ends[name] for name in ends if name in caches]
    if IDS not in ends or not pasts:
        raise UserError(
            f"{program.source.path}: a service continues texts, expected a decoder with the input "
            f"{IDS} and caches"
        )
    wanted = {"sequences": ends[IDS][0], "tokens": ends[IDS][1], "tokens in caches": pasts[0][-2]}
    batch, tokens, past = (_symbol(program, what, size) for what, size in wanted.items())
    totals = [name for name in ends.get(MASK, ()) if isinstance(name, str)]
    others = [name for name in totals if name.isidentifier() and name not in (batch, tokens, past)]
    return _Names(batch, tokens, past, tuple(others))


def _symbol(program: Program, what: str, size: int | str) -> str:
    """Return the name of an open size; raises :class:`UserError` for a fixed one."""
    if isinstance(size, int):
        raise UserError(
            f"{program.source.path}: a service has any number of {what}, expected a symbolic "
            f"dimension, got: {size}"
        )
    return size
