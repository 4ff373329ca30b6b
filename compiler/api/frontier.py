"""Results of a search: a frontier is a sequence of points, and each point compiles to a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from tensoropt.compiler.api.pickling import reduced
from tensoropt.compiler.api.program import Program, Say
from tensoropt.compiler.api.progress import reporting_to
from tensoropt.compiler.cost.expected_error import PlanError
from tensoropt.compiler.exporter.standard.cache_effect import Effect, read_effect
from tensoropt.compiler.planning.memory_limit import (
    check_capacity,
    nothing_fits,
    passed_over,
    pick,
    points_within,
)
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.report.frontier import FrontierReport
from tensoropt.compiler.report.notes import (
    endings,
    ignored_annotations,
    interruption,
    omissions,
    passed_over_note,
    pins_line,
    ranks_note,
    replicas_note,
    tensor_limit_note,
)
from tensoropt.compiler.report.splitting import splitting_notes
from tensoropt.compiler.report.table import frontier_table
from tensoropt.compiler.search.frontier import points as points_of
from tensoropt.compiler.search.frontier.search import joined, unbeaten
from tensoropt.compiler.search.problem.problem import DoesNotFitError
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.units import format_bytes, format_seconds, parse_bytes
from tensoropt.dialects.topt.keys import ANNOTATED
from tensoropt.passes.pins import pins_entry
from tensoropt.runtime.api.display import Shown
from tensoropt.runtime.plan.entries import PinsEntry

if TYPE_CHECKING:
    import pandas

    from tensoropt.compiler.report.explanation import Explanation
    from tensoropt.compiler.search.frontier.search import FrontierPoint, FrontierResult
    from tensoropt.dialects.mlir import ir
    from tensoropt.passes.search_strategies import SearchReport
    from tensoropt.runtime.api.plan import Plan

__all__ = ["Frontier", "Interrupted", "Point", "interrupt_with"]


@dataclass
class _Whole:
    """State that all parts of a frontier share.

    ``settled`` is the index of the last settled point, with its module. A plan consumes it. Points
    of several forms of a model have ``owners``: by index, the whole that found the point, and the
    point there. ``lacking`` are notes on forms that do not fit the memory. ``added`` are options
    that the search chose because nothing fits without, with a line on this ``choice``. If nothing
    fits with others either, ``tried`` are the words on these.
    """

    name: str
    program: Program
    report: SearchReport
    settled: tuple[int, ir.Module] | None = None
    owners: Mapping[int, tuple[_Whole, FrontierPoint]] = field(default_factory=dict)
    forms: Sequence[_Whole] = ()
    lacking: tuple[str, ...] = ()
    added: Mapping[str, str] = field(default_factory=dict)
    choice: tuple[str, ...] = ()
    tried: str = ""

    @property
    def request(self) -> Request:
        assert self.report.request is not None
        return self.report.request

    @property
    def result(self) -> FrontierResult:
        assert self.report.result is not None
        return self.report.result

    @property
    def pins(self) -> PinsEntry | None:
        """The pins of the search and their cost."""
        return pins_entry(self.request, self.report.pins_cost)

    @classmethod
    def of_forms(cls, forms: Sequence[_Whole]) -> _Whole:
        """Return the whole of the points of all forms that none beats.

        A point beats no point of another form with a smaller effect on the output.
        """
        owned = [[(form, point) for point in form.result.points] for form in forms]
        loss = [max((own.divergence for own in form.effects.values()), default=0) for form in forms]
        kept = []
        for form, largest in zip(forms, loss, strict=True):
            rivals = [own for own, less in zip(owned, loss, strict=True) if less <= largest]
            best = unbeaten(chain(*rivals), lambda own: (own[1].time_s, own[1].process_bytes))
            kept += [pair for pair in best if pair[0] is form]
        kept.sort(key=lambda own: (own[1].time_s, own[1].process_bytes))
        first, results = forms[0], [form.result for form in forms]
        points = [replace(point, index=index) for index, (_, point) in enumerate(kept)]
        report = replace(first.report, result=joined(results, points))
        return cls(first.name, first.program, report, None, dict(enumerate(kept)), forms)

    def owner(self, point: FrontierPoint) -> tuple[_Whole, FrontierPoint]:
        """Return the whole that found a ``point``, and the point there."""
        return self.owners.get(point.index, (self, point))

    @cached_property
    def effects(self) -> dict[str, Effect]:
        """The effects of 8-bit caches that the forms record, by model."""
        sources = {own.name: own.program.source.weights for own in self.forms or (self,)}
        found = [(name, read_effect(path)) for name, path in sources.items() if path is not None]
        return {name: effect for name, effect in found if effect is not None}

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced(self, [form.program for form in self.forms or (self,)])

    def settle(self, point: FrontierPoint) -> ir.Module:
        """Return the module with the strategies of ``point``; the caller holds the lock."""
        if self.settled is None or self.settled[0] != point.index:
            self.settled = point.index, self.program.settle(self.report, point)
        return self.settled[1]


class Point:
    """One trade-off: a mesh, a layout for every tensor, and their cost per device.

    ``index`` counts the points of the whole frontier from the fastest on. ``time_s`` is the time of
    one step, ``compute_s`` and ``communication_s`` are its parts, and ``hidden_s`` is the
    communication that overlaps with operators. ``process_bytes`` is the memory of the process on a
    device, which ``memory`` limits; ``memory_bytes`` is the memory of its tensors, the sum of
    ``static_bytes`` (weights and state) and ``transient_bytes``. ``is_above_capacity`` if the
    process takes more memory than the device has: the point then does not compile. A search with
    ``memory`` has no such points. For a training step,
    ``recompute`` is the choice of recomputed activations, and ``micro_batches`` the number of
    micro-batches; both are None for inference. ``replicas`` has a row for each replica on unlike
    devices: its ``device``, its ``micro_batches`` and ``samples``, and their time ``busy_s``.
    """

    def __init__(
        self, whole: _Whole, found: FrontierPoint, passed_over: FrontierPoint | None = None
    ) -> None:
        """Create a point, picked instead of the point ``passed_over`` if there is one."""
        self._whole, self.found, self._passed_over = whole, found, passed_over
        self._form, self._own = whole.owner(found)
        self.index, self.mesh = found.index, found.mesh
        self.time_s, self.compute_s = found.time_s, found.compute_s
        self.communication_s, self.hidden_s = found.communication_s, found.hidden_s
        self.process_bytes = found.process_bytes
        self.memory_bytes, self.static_bytes = found.memory_bytes, found.static_bytes
        self.transient_bytes = found.transient_bytes
        self.is_above_capacity = found.is_above_capacity
        self.recompute = points_of.recompute_of(found)
        self.micro_batches = points_of.micro_batches_of(found)
        self.replicas = tuple(points_of.replicas_of(found))

    def __copy__(self) -> Point:
        return self

    def __deepcopy__(self, memo: object) -> Point:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        before = self._passed_over
        return _point, (self._whole, self.index, None if before is None else before.index)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Point):
            return NotImplemented
        return other._whole is self._whole and other.index == self.index

    def __hash__(self) -> int:
        return hash((id(self._whole), self.index))

    def __repr__(self) -> str:
        marks = "".join(f", {mark}" for mark in self.marks)
        return (
            f"<Point {self.index} of {self.model}: mesh {points_of.mesh_name(self.mesh)}, "
            f"{format_seconds(self.time_s)}, {format_bytes(self.process_bytes)}{marks}>"
        )

    def _repr_html_(self) -> str:
        from tensoropt.compiler.api.html import point_html

        marks = f" ({', '.join(self.marks)})" if self.marks else ""
        return point_html(f"point {self.index} of {self.model}{marks}", self, self.notes)

    @property
    def model(self) -> str:
        """The name of the model, the point's own of several forms."""
        return self._form.name

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks of the point in the whole frontier: fastest, leanest, knee, above capacity.

        The points with names are within the capacity of the device.
        """
        return tuple(points_of.marks(self._whole.result.points).get(self.index, ()))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the point: devices without work, unlike devices, and memory limits."""
        request, facts = self._whole.request, _facts(self._form)
        with self._form.program.lock:
            lines = [*splitting_notes(facts, self._own)]
        if self._passed_over is not None:
            lines.insert(0, passed_over_note(self._passed_over, self.found))
        devices = points_of.stage_devices_of(self.found)
        if devices:
            lines.append(ranks_note(devices, math.prod(self.found.mesh)))
        if self.replicas:
            lines.append(replicas_note(self.replicas, math.prod(self.found.mesh)))
        if request.memory is not None and request.description.process is None:
            return (*lines, tensor_limit_note(request.description.name))
        return tuple(lines)

    def explain(self) -> Shown[Explanation]:
        """Return the explanation of the plan: layers, splits, collectives, time and memory."""
        from tensoropt.compiler.report.explain.explain import explain
        from tensoropt.compiler.report.explain.text import explanation_text

        request = self._form.request
        device, error = request.description.name, self._form.program.plan_error(request)
        given = self.model, device, self._form.pins, error
        with self._form.program.lock:
            explanation = explain(self._own, self._form.result.points, *given)
        return Shown(explanation, explanation_text(explanation))

    def netron(self, path: str | Path) -> tuple[int, int]:
        """Write the model with the plan of each node as metadata, which Netron shows.

        Returns the number of nodes in the plan, and of all nodes. Raises :class:`UserError` if
        there is no ONNX model, or if its weights would not be found.
        """
        from tensoropt.compiler.report.netron import write_netron

        self._check_whole("netron")
        model = self._form.program.source.weights
        if model is None:
            raise UserError(
                f"--netron {path}: expected an .onnx model, or the one with the weights of the text"
            )
        explanation = self.explain().data
        with self._form.program.lock:
            return write_netron(explanation, self._own, model, Path(path))

    def compile(
        self, directory: str | Path, *, progress: bool | Callable[[str], None] = False
    ) -> Plan:
        """Write the plan into a folder, which appears only when it is complete, and return it.

        An existing plan is replaced. Raises :class:`UserError` for any other existing content, and
        for a point above the capacity of the device.
        """
        from tensoropt.runtime.api.plan import Plan

        program = self._form.program
        program.source.check_weights(Path(directory), trains=program.trains)
        with reporting_to(progress) as say:
            self.write(Path(directory), say)
        return Plan.open_written(directory, self.explain)

    def write(self, directory: Path, say: Say) -> None:
        """Write the plan into ``directory``."""
        from tensoropt.compiler.exporter.plan.writer import check_replaceable

        check_replaceable(directory)
        whole, form = self._whole, self._form
        check_capacity(f"point {self.index}", self.found, whole.result.points, whole.request)
        with form.program.lock:
            module, form.settled = form.settle(self._own), None
            form.program.compile(module, directory, say)

    def annotate(self, path: str | Path) -> tuple[int, int]:
        """Write the model with the plan as ONNX's multi-device annotations.

        Returns the number of annotated nodes, and of all nodes. Raises :class:`UserError` for a
        plan that annotations cannot express, and for a path from which the weights would not be
        found.
        """
        from tensoropt.compiler.exporter.standard.annotations import (
            check_annotatable,
            write_annotated,
        )

        self._check_inference("annotations")
        model, target = self._form.program.source.weights_for(Path(path)), Path(path)
        check_annotatable(model, target)
        with self._form.program.lock:
            return write_annotated(self._form.settle(self._own), model, target)

    def dtensor(self) -> dict[str, Any]:
        """Return the mesh and the placements of parameters, for PyTorch's DTensor."""
        from tensoropt.compiler.exporter.standard.dtensor import dtensor_document

        self._check_inference("dtensor")
        with self._form.program.lock:
            return dtensor_document(self._form.settle(self._own))

    def _check_inference(self, flag: str) -> None:
        if self.recompute is not None:
            raise UserError(f"--{flag} is about a model, expected no training step")
        self._check_whole(flag)

    def _check_whole(self, flag: str) -> None:
        if points_of.stages_of(self.found) > 1:
            raise UserError(f"--{flag} is about a model on one mesh, expected --stages 1")
        if self.replicas:
            raise UserError(
                f"--{flag} is about a model on one mesh, expected a plan without replicas"
            )


class Frontier(Sequence[Point]):
    """Plans that no other plan beats in both time and memory, from the fastest to the leanest.

    A sequence of :class:`Point`; slices, and the result of `fits`, are frontiers again.
    """

    def __init__(
        self, whole: _Whole, found: Sequence[FrontierPoint], limit_bytes: int | None = None
    ) -> None:
        self._whole, self._found, self._limit_bytes = whole, list(found), limit_bytes

    def __copy__(self) -> Frontier:
        return self

    def __deepcopy__(self, memo: object) -> Frontier:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _frontier, (self._whole, [own.index for own in self._found], self._limit_bytes)

    @classmethod
    def from_report(cls, name: str, program: Program, report: SearchReport) -> Frontier:
        """Return all points of a ``report``, even if they do not fit its request."""
        whole = _Whole(name, program, report)
        return cls(whole, whole.result.points)

    @classmethod
    def from_points(
        cls, name: str, program: Program, report: SearchReport, found: Sequence[FrontierPoint]
    ) -> Frontier:
        """Return the frontier of ``found``, the points of a ``report`` that fit its request."""
        limit = None if report.request is None else report.request.limit_bytes
        return cls(_Whole(name, program, report), found, limit)

    @classmethod
    def of_forms(cls, searches: Mapping[str, Callable[[], Frontier]]) -> Frontier:
        """Return the points of several forms of a model that no other point of any form beats.

        They compare in time, memory, and the divergence that a form with 8-bit caches records. Each
        search, by the name of the form, returns its frontier. Forms that do not fit the memory
        are left out, with a note. Raises :class:`DoesNotFitError` if none fits.
        """
        frontiers, failures = list[Frontier](), dict[str, DoesNotFitError]()
        for name, search in searches.items():
            try:
                frontiers.append(search())
            except DoesNotFitError as error:
                failures[name] = error
        if not frontiers:
            raise next(iter(failures.values()))
        found = cls._of_fitting(frontiers)
        found._whole.lacking = tuple(f"note: {name}: {why}" for name, why in failures.items())
        return found

    @classmethod
    def _of_fitting(cls, frontiers: Sequence[Frontier]) -> Frontier:
        if len(frontiers) == 1:
            return frontiers[0]
        whole = _Whole.of_forms([frontier._whole for frontier in frontiers])
        return cls(whole, whole.result.points).limit(whole.request.memory_bytes)

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Point]:
        return (Point(self._whole, found) for found in self._found)

    @overload
    def __getitem__(self, index: int) -> Point: ...
    @overload
    def __getitem__(self, index: slice) -> Frontier: ...
    def __getitem__(self, index: int | slice) -> Point | Frontier:
        if isinstance(index, slice):
            return Frontier(self._whole, self._found[index], self._limit_bytes)
        try:
            return Point(self._whole, self._found[index])
        except IndexError:
            wanted = f"one of {len(self)} points, from 0 on" if self else "a frontier with points"
            raise IndexError(f"expected {wanted}, got: {index}") from None

    def __repr__(self) -> str:
        lines = [*frontier_table(self.facts()).splitlines(), *self.notes]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from tensoropt.compiler.api.html import frontier_html

        return frontier_html(self.facts(), self.notes)

    @property
    def fastest(self) -> Point:
        """The point of least time."""
        return self.pick("fastest")

    @property
    def leanest(self) -> Point:
        """The point of least memory."""
        return self.pick("leanest")

    @property
    def knee(self) -> Point:
        """The point beyond which 1% more time no longer saves 3% of memory."""
        return self.pick("knee")

    def pick(self, which: str | int) -> Point:
        """Return the point ``which``: fastest, leanest, knee, or an index.

        Points above the capacity of the device are passed over. Raises :class:`DoesNotFitError` if
        all are above it.
        """
        if not self._found:
            raise self._nothing()
        request, which = self._whole.request, str(which)
        with request.interface.naming():
            try:
                found = pick(self._found, request, which)
            except DoesNotFitError as error:
                error.args = (f"{error}{self._whole.tried}",)
                raise
        return Point(self._whole, found, passed_over(self._found, found, which))

    def fits(self, memory: int | str) -> Frontier:
        """Return the points that need no more than ``memory`` per device, such as 16GiB.

        The result may be empty; picking a point of it then raises :class:`UserError` with the
        memory that is needed.
        """
        return self.limit(parse_bytes(str(memory), "memory"))

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame with a row per point; times are in seconds, memory is in bytes.

        Points above the capacity of the device come last.
        """
        try:
            import pandas
        except ModuleNotFoundError:
            raise UserError(
                "to_pandas needs pandas, expected: pip install 'tensoropt[pandas]'"
            ) from None
        points = points_of.fitting_first(self)
        rows = [{**points_of.as_dict(p), "mesh": points_of.mesh_name(p.mesh)} for p in points]
        marks = [" ".join(point.marks) for point in points]
        return pandas.DataFrame(rows).assign(marks=marks).set_index("index")

    def plot(self, path: str | Path, point: Point | None = None) -> None:
        """Draw the points into a .png or .svg file, with ``point`` marked."""
        from tensoropt.compiler.report.plot import plot_frontier

        plot_frontier(self.facts(point), Path(path))

    def report(self, path: str | Path, point: Point | None = None) -> None:
        """Write a page on the whole frontier and ``point`` (the fastest) into a .html file.

        Of several forms of a model, the page is about the form of the point.
        """
        from tensoropt.compiler.report.html.report import write_report

        picked = point or self.fastest
        form, own = picked._form, picked._own
        facts, notes = _facts(form), (*self._whole.choice, *picked.notes)
        with form.program.lock:
            write_report(facts, form.result.points, own, Path(path), notes, form.pins)

    @property
    def request(self) -> Request:
        """The request, with the number of devices that the search settled on."""
        return self._whole.request

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._whole.name

    @property
    def devices(self) -> int:
        """The number of devices of the plans."""
        return self._whole.request.devices

    @property
    def device(self) -> str:
        """The name of the device description."""
        return self._whole.request.description.name

    @property
    def epsilon(self) -> float | None:
        """The relative bound of the distance from the exact frontier: 0 is exact.

        None if the search proves no bound.
        """
        return self._whole.result.epsilon

    @property
    def is_interrupted(self) -> bool:
        """True if Ctrl-C ended the search."""
        return self._whole.result.interrupted

    @property
    def added(self) -> Mapping[str, str]:
        """The options that the search added by itself, as nothing fits without; usually none."""
        return self._whole.added

    def note_further(self, added: Mapping[str, str], *, choice: str = "", tried: str = "") -> None:
        """Note that this is a further search: with ``added`` options, and a line on their choice.

        If nothing fits, ``tried`` are the words on all searches.
        """
        whole, self._whole.added = self._whole, added
        whole.choice, whole.tried = (choice,) if choice else (), tried

    @property
    def whole(self) -> Frontier:
        """All points that were found, including points that do not fit the requested memory."""
        return Frontier(self._whole, self._whole.result.points)

    @property
    def search_notes(self) -> tuple[str, ...]:
        """Notes on left-out meshes, on how to continue the search, and on the cost of pins."""
        choice = self._whole.choice
        if self._whole.forms:
            forms = [Frontier(form, form.result.points) for form in self._whole.forms]
            return (
                *choice,
                *(f"{form.model}: {line}" for form in forms for line in form.search_notes),
            )
        shown, report = self.facts(), self._whole.report
        ended = endings(shown, anytime=self.request.anytime)
        lines = (*choice, *omissions(shown), *ended, *report.notes)
        program = self._whole.program
        with program.lock:
            annotated = ANNOTATED.get(program.module.operation.attributes)
        if annotated and self.request.annotations is None:
            lines = (*lines, ignored_annotations(self._whole.name, annotated))
        priced = report.prices_pins and self.request.read_pins and not self.is_interrupted
        return (*lines, pins_line(report.pins_cost)) if priced else lines

    @property
    def lacking(self) -> tuple[str, ...]:
        """Notes on the forms of the model that do not fit the memory."""
        return self._whole.lacking

    @property
    def program_notes(self) -> tuple[str, ...]:
        """Notes on the model, in all of its forms."""
        forms = self._whole.forms or (self._whole,)
        return tuple(line for form in forms for line in form.program.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the search and the model, for people."""
        lines = (*self.lacking, *self.search_notes, *self.program_notes)
        if not self.is_interrupted:
            return lines
        left_out = bool(self._whole.result.left_out)
        return (interruption(self.epsilon, left_out=left_out), *lines)

    def facts(self, chosen: Point | None = None, *, narrowed: bool = False) -> FrontierReport:
        """Return the input of tables and plots; with ``narrowed``, for one point alone."""
        report = replace(_facts(self._whole), points=self._found, added=self.added)
        return replace(report, chosen=None if chosen is None else chosen.found, narrowed=narrowed)

    def limit(self, limit_bytes: int | None) -> Frontier:
        """Return the points of at most ``limit_bytes``, or all for None."""
        if limit_bytes is None:
            return self
        return Frontier(self._whole, points_within(self._found, limit_bytes), limit_bytes)

    def _nothing(self) -> UserError:
        if self._limit_bytes is None or self._whole.report.result is None:
            return UserError("expected a frontier with points, got: an empty one")
        lean, request = points_of.leanest(self._whole.result.points), self.request
        if self._limit_bytes != request.limit_bytes:
            request = replace(request, memory=str(self._limit_bytes))
        return nothing_fits(request, self._limit_bytes, lean.process_bytes, lean=lean)


def _point(whole: _Whole, index: int, passed_over: int | None) -> Point:
    """Return a pickled point."""
    before = None if passed_over is None else whole.result.points[passed_over]
    return Point(whole, whole.result.points[index], before)


def _frontier(whole: _Whole, indices: Sequence[int], limit_bytes: int | None) -> Frontier:
    """Return a pickled frontier."""
    return Frontier(whole, [whole.result.points[index] for index in indices], limit_bytes)


class Interrupted(KeyboardInterrupt):  # named like its base, without Error
    """Ctrl-C ended a search; ``frontier`` has the points found until then."""

    def __init__(self, frontier: Frontier) -> None:
        super().__init__(frontier)
        self.frontier = frontier

    def __str__(self) -> str:
        count = len(self.frontier)
        points = "1 point" if count == 1 else f"{count} points"
        return f"the search was interrupted, .frontier has the {points} found until then"


def interrupt_with(name: str, program: Program, report: SearchReport) -> KeyboardInterrupt:
    """Return the exception for Ctrl-C, with the points found so far, if any."""
    if report.request is None or report.result is None or not report.result.interrupted:
        return KeyboardInterrupt()
    return Interrupted(Frontier.from_report(name, program, report))


def _error(whole: _Whole) -> PlanError | None:
    """Return the expected error; a form that has not been measured comes first."""
    errors = [form.program.plan_error(whole.request) for form in whole.forms or (whole,)]
    return next((own for own in errors if own is None or not own.model_measured), errors[0])


def _facts(whole: _Whole) -> FrontierReport:
    request, result = whole.request, whole.result
    return FrontierReport(
        whole.name,
        request.description.name,
        request.devices,
        result.points,
        epsilon=result.epsilon,
        time_epsilon=result.time_epsilon,
        found=result.found,
        left_out=result.left_out,
        interrupted=result.interrupted,
        stopped=result.stopped,
        time_limit_s=result.time_limit_s,
        error=_error(whole),
        axes=result.axes,
        by_tables=result.by_tables,
        forms={index: form.name for index, (form, _) in whole.owners.items()},
        effects=whole.effects,
    )
