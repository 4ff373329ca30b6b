"""Further searches if no point fits the memory: more recomputation, micro-batches, then stages.

A further search is the search of a request with more options, so the same flags repeat its answer.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tensoropt.compiler.api.frontier import Frontier, Interrupted
from tensoropt.compiler.api.program import Program, Say
from tensoropt.compiler.api.training import Training, step_of
from tensoropt.compiler.importer.batch import batch_of
from tensoropt.compiler.pipeline.driver import is_text
from tensoropt.compiler.planning.request import AUTO, Request
from tensoropt.compiler.program.samples import check_samples
from tensoropt.compiler.search.problem.bounds import least_bytes, least_state_bytes
from tensoropt.compiler.search.problem.problem import DoesNotFitError
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.options import Interface
from tensoropt.compiler.support.units import format_bytes
from tensoropt.compiler.training import micro_batches, spec
from tensoropt.passes.search_strategies import SearchReport
from tensoropt.runtime.plan.dims import Sizes

if TYPE_CHECKING:
    from tensoropt.compiler.cost.device import Device
    from tensoropt.compiler.program.graph import Graph
    from tensoropt.passes.build_training_step import BuildTrainingStepPass

__all__ = ["Asked", "find_fitting", "frontier_of"]

LEAST_S = 3.0
"""Least time of a further search, if the time of a search was requested and is not less."""

Options = Mapping[str, str]
"""Values of options, by name."""


class Form(Protocol):
    """A form of a model: see :class:`Model`."""

    path: Path
    dims: dict[str, Sizes]

    def program(
        self,
        step: BuildTrainingStepPass | None = None,
        say: Say = ...,
        device: Device | None = None,
    ) -> Program: ...
    def search(self, program: Program, request: Request, report: SearchReport) -> Frontier: ...


Forms = Mapping[str, Form]


@dataclass(frozen=True)
class Asked:
    """A request, and the training step to plan; None for inference."""

    request: Request
    training: Training | None = None

    @property
    def step(self) -> BuildTrainingStepPass | None:
        """The pass that builds the training step."""
        return step_of(self.training, self.request)

    def having(self, options: Options) -> Asked:
        """Return the same request with ``options`` too."""
        request, training = self.request, self.training
        of_step = {name: value for name, value in options.items() if name != "stages"}
        if training is not None and of_step:
            training = replace(training, **of_step)  # type: ignore[arg-type]
        if options.get("stages") == "auto":
            request = replace(request, stages=AUTO)
        return Asked(request, training)

    @property
    def fixed(self) -> Options:
        """The requested options that exclude further searches."""
        request, training = self.request, self.training
        options: dict[str, str] = {}
        if training is not None and training.recompute not in (None, spec.AUTO):
            options["recompute"] = str(training.recompute)
        if training is not None and training.micro_batches is not None:
            options["micro_batches"] = str(training.micro_batches)
        if request.mesh is not None:
            options["mesh"] = request.mesh
        elif not request.may_cut and request.stages != AUTO:
            options["stages"] = str(request.stages)
        return options

    def exceeds(self, tensor_bytes: int) -> bool:
        """Return whether a process with these tensors exceeds the limit of the request."""
        limit = self.request.limit_bytes
        return limit is not None and self.request.rest_bytes + tensor_bytes > limit


def frontier_of(form: Form, asked: Asked, say: Say, begun_s: float | None = None) -> Frontier:
    """Return the frontier of a form for a request that began at a time, by default now."""
    begun_s = time.monotonic() if begun_s is None else begun_s
    program = form.program(asked.step, say, asked.request.description)
    report = SearchReport(say, begun_s, prices_pins=True, shows_all=True)
    return form.search(program, asked.request, report)


def find_fitting(forms: Forms, asked: Asked, say: Say, begun_s: float) -> Frontier:
    """Return the frontier of ``asked``, or of a further search if no point of it fits.

    It is of all ``forms`` of a model, by name, for a request that began at ``begun_s``. The answer
    is the first frontier with a point that fits. If there is none, returns the nearest, or raises
    its error. Requested options do not change.
    """
    first, request = _Attempt.run(forms, asked, {}, begun_s, say), asked.request
    is_free = request.search == "ft" and request.strategies is None
    is_open = is_free and request.objective != "devices" and not asked.exceeds(0)
    if first.error is None or not is_open:
        return first.answer()
    return _Further(forms, asked, first, say).answer()


@dataclass
class _Attempt:
    """A search with more ``options``; ``error`` says by how much its plans are too large."""

    options: Options
    frontier: Frontier | None
    error: DoesNotFitError | None = None
    is_raised: bool = False

    @classmethod
    def run(
        cls, forms: Forms, asked: Asked, options: Options, begun_s: float, say: Say
    ) -> _Attempt:
        """Search all forms; the first has the time from ``begun_s`` on."""
        if len(forms) > 1:  # an index to pick is of the points of all forms
            asked = replace(asked, request=replace(asked.request, pick=None))
        first, *others = forms
        searches = {first: partial(frontier_of, forms[first], asked, say, begun_s)}
        searches |= {name: partial(frontier_of, forms[name], asked, say) for name in others}
        try:
            frontier = Frontier.of_forms(searches)
        except DoesNotFitError as error:
            return cls(options, error.frontier, error, is_raised=True)
        try:
            frontier.pick("fastest")
        except DoesNotFitError as error:
            return cls(options, frontier, error)
        return cls(options, frontier)

    @property
    def lacks_bytes(self) -> float:
        """The memory that the leanest plan lacks, 0 if it fits."""
        return 0 if self.error is None else self.error.lacks_bytes

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches that the search has chosen."""
        return int(self.options.get("micro_batches", "1..1").split("..")[0])

    def answer(self) -> Frontier:
        """Return the frontier; raises the error if the search raised it."""
        if self.is_raised or self.frontier is None:
            assert self.error is not None
            raise self.error
        return self.frontier


@dataclass
class _Further:
    """The searches after the ``first`` one, in which nothing fits.

    ``failures`` are the options with which nothing fits either, ``refusal`` the reason why options
    are impossible.
    """

    forms: Forms
    asked: Asked
    first: _Attempt
    say: Say
    begun_s: float = field(default_factory=time.monotonic)
    failures: list[Options] = field(default_factory=list)
    refusal: str = ""

    def __post_init__(self) -> None:
        self.nearest = self.first

    def answer(self) -> Frontier:
        """Return the first frontier with a point that fits, else the nearest."""
        for options in self._ways():
            try:
                attempt = self._attempt(options)
            except Interrupted:
                raise
            except KeyboardInterrupt:
                if self.nearest.is_raised or self.nearest.frontier is None:
                    raise
                raise Interrupted(self.nearest.frontier) from None
            except UserError as error:
                self.refusal = self.refusal or f"{self._flags(options)}: {error}"
                continue
            if attempt is not None and attempt.error is None:
                frontier = attempt.answer()
                frontier.note_further(options, choice=self._choice(options))
                return frontier
            self.failures.append(options)
            if attempt is not None and attempt.lacks_bytes < self.nearest.lacks_bytes:
                self.nearest = attempt
        return self._unfit()

    def _attempt(self, options: Options) -> _Attempt | None:
        """Search with more options; return None if the tensors alone are too large."""

        def say(text: str) -> None:
            self.say(f"with {self._flags(options)}, {text}")

        asked = self.asked.having(options)
        request = asked.request
        graphs = self._graphs(asked, say)
        if request.stages == 1:
            least = min(least_bytes(graph, request.devices) for graph in graphs)
            if asked.exceeds(least):
                return None
        if request.search_time is not None:
            left_s = request.search_time - (time.monotonic() - self.begun_s)
            limit_s = max(left_s, min(request.search_time, LEAST_S))
            asked = replace(asked, request=replace(request, search_time=limit_s))
        return _Attempt.run(self.forms, asked, options, self.begun_s, say)

    def _ways(self) -> Iterator[Options]:
        """Yield more options, those that cost the least time first."""
        request, training = self.asked.request, self.asked.training
        if self.asked.exceeds(self._state_bytes):
            return
        leaner = self._recomputation
        if leaner:
            yield leaner
        single = {"stages": "1"} if self._cuts_by_default else {}
        for number in self._numbers:
            if number == self._numbers[-1] or self._may_suffice(number):
                yield {**leaner, "micro_batches": f"{number}..{number}", **single}
        if not request.may_cut or request.stages != 1 or request.devices == 1:
            return
        if self._numbers:
            most = self._numbers[-1]
            yield {**leaner, "micro_batches": f"{most}..{most}", "stages": "auto"}
        elif training is None or str(training.micro_batches or 1) != "1":
            yield {**leaner, "stages": "auto"}

    def _may_suffice(self, number: int) -> bool:
        """Return whether plans with this number of micro-batches may fit.

        All memory except weights and states shrinks at most in proportion to the micro-batches.
        """
        limit = self.asked.request.limit_bytes or 0
        need, factor = limit + self.nearest.lacks_bytes, number / self.nearest.micro_batches
        fixed = self.asked.request.rest_bytes + self._state_bytes
        return math.isinf(need) or fixed + (need - fixed) / factor <= limit

    @property
    def _model(self) -> Form:
        """The only form of the model in training."""
        return next(iter(self.forms.values()))

    def _graphs(self, asked: Asked, say: Say) -> list[Graph]:
        """Return the graphs of a request, of all forms of the model."""
        device = asked.request.description
        programs = (form.program(asked.step, say, device) for form in self.forms.values())
        return [graph for program in programs for graph in program.graphs.values()]

    @cached_property
    def _state_bytes(self) -> int:
        """The least weights and optimizer states of a device."""
        graphs, devices = self._graphs(self.asked, self.say), self.asked.request.devices
        return min(least_state_bytes(graph, devices) for graph in graphs)

    @cached_property
    def _recomputation(self) -> Options:
        """The leanest recomputation, if the first search was cut short and may have missed it."""
        training, frontier = self.asked.training, self.first.frontier
        if training is None or "recompute" in self.asked.fixed:
            return {}
        if frontier is not None and frontier.facts().stopped != "time":
            return {}
        *others, last = self._model.program(self.asked.step, self.say).graphs
        return {"recompute": last.recompute} if others else {}

    @cached_property
    def _numbers(self) -> list[int]:
        """The numbers of micro-batches to try; none if one was requested, or is impossible."""
        training, step, model = self.asked.training, self.asked.step, self._model
        if training is None or step is None or training.micro_batches is not None:
            return []
        if is_text(model.path):
            self.refusal = f"{model.path}: the batch of MLIR text cannot be split"
            return []
        graph = self._graphs(self.asked, self.say)[0]
        try:
            with self.asked.request.interface.naming():
                _, samples = batch_of(model.path, model.dims)
                check_samples(graph, is_mean=step.spec.loss.kind != "output")
        except UserError as error:
            self.refusal = str(error)
            return []
        return micro_batches.numbers_of(micro_batches.AUTO, samples)[1:]

    @property
    def _cuts_by_default(self) -> bool:
        """True if a command with several micro-batches searches stages too."""
        request = self.asked.request
        if not request.may_cut or request.stages != 1:
            return False
        several = replace(request, stages=None, accumulates=True)  # type: ignore[arg-type]
        return several.stages == AUTO

    def _flags(self, options: Options) -> str:
        """Return options in the notation of the command, or of Python."""
        interface = self.asked.request.interface
        if interface is Interface.PYTHON:
            return ", ".join(f"{name}='{value}'" for name, value in options.items())
        return " ".join(f"{interface.name_of(name)} {value}" for name, value in options.items())

    @property
    def _fixed(self) -> str:
        flags = self._flags(self.asked.fixed)
        return f"; kept: {flags}" if flags else ""

    def _choice(self, options: Options) -> str:
        """Return the line on the options that the search chose."""
        but = f", nor with {' or '.join(self._failures)}" if self.failures else ""
        limit = format_bytes(self.asked.request.limit_bytes or 0)
        return (
            f"note: nothing fits {limit} as requested{but}: the search chose "
            f"{self._flags(options)}, which repeats this answer{self._fixed}"
        )

    @property
    def _failures(self) -> Iterator[str]:
        """The options of all failures, numbers of micro-batches together."""
        for _, group in itertools.groupby(self.failures, key=tuple):
            first, *others = group
            last = f" to {others[-1]['micro_batches']}" if others else ""
            yield self._flags(first) + last

    def _unfit(self) -> Frontier:
        """Return the nearest frontier, or raise its error, with the words on the searches."""
        nearest, words = self.nearest, "there is nothing else to try"
        if self.asked.exceeds(self._state_bytes):
            least = format_bytes(self.asked.request.rest_bytes + self._state_bytes)
            what = "weights" if self.asked.training is None else "weights and states"
            words = f"nothing else helps: a process needs at least {least} for {what} alone"
        elif self.failures:
            words = f"tried {' and '.join(self._failures)}"
            if nearest.options:
                words += f", the nearest with {self._flags(nearest.options)}"
        refusal = f"; {self.refusal}" if self.refusal else ""
        words = f" ({words}{self._fixed}{refusal})"
        if nearest.is_raised or nearest.frontier is None:
            assert nearest.error is not None
            nearest.error.args = (f"{nearest.error}{words}",)
            raise nearest.error
        nearest.frontier.note_further(nearest.options, tried=words)
        return nearest.frontier
