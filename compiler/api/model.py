"""Models to plan for, and `tensoropt.load`."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from tensoropt.compiler.api.fitting import Asked, find_fitting, frontier_of
from tensoropt.compiler.api.frontier import Frontier, interrupt_with
from tensoropt.compiler.api.program import Program, Say, Source, silent
from tensoropt.compiler.api.progress import reporting_to
from tensoropt.compiler.api.request import (
    SearchArguments,
    SearchLimits,
    documented,
    make_request,
    plain,
)
from tensoropt.compiler.api.scaling import Scaling
from tensoropt.compiler.api.training import Training, step_of
from tensoropt.compiler.cost import bodies
from tensoropt.compiler.exporter.plan.describe import End, check_ends, ends_of
from tensoropt.compiler.exporter.rank import RUNTIME
from tensoropt.compiler.importer.dimensions import open_dims
from tensoropt.compiler.pipeline.driver import compile_plan, is_text, loaded
from tensoropt.compiler.pipeline.phases import PHASES, Compilation, freeze_tables
from tensoropt.compiler.report.decoders import decoder_notes
from tensoropt.compiler.report.notes import (
    missing_files,
    open_lengths,
    open_sizes,
    open_turns,
)
from tensoropt.compiler.report.training import batch_notes, training_notes
from tensoropt.compiler.search.problem.problem import DoesNotFitError
from tensoropt.compiler.shapes.caches import open_heads, open_tokens
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.options import Interface
from tensoropt.compiler.training.alternatives import unite_steps
from tensoropt.compiler.training.cut import copy_of
from tensoropt.compiler.training.micro_batches import are_several, numbers_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.keys import TRAINING
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.passes.dce import DcePass
from tensoropt.passes.fuse_attention import FuseAttentionPass
from tensoropt.passes.pipeline import Pipeline, passed_phase
from tensoropt.passes.search_strategies import SearchReport
from tensoropt.runtime.plan.dims import Sizes, parse_ranges, sizes_text, terms

if TYPE_CHECKING:
    from tensoropt.compiler.api.service import Service
    from tensoropt.compiler.cost.device import Device
    from tensoropt.compiler.planning.request import Request
    from tensoropt.compiler.planning.service import ServiceLevel

__all__ = ["Model", "load"]


def load(
    path: str | Path,
    dims: Mapping[str, Given] | None = None,
    *,
    weights: str | Path | None = None,
    rules: str | Path | None = None,
    progress: bool | Callable[[str], None] = False,
) -> Model:
    """Return the model in an ``.onnx`` file, or in MLIR text that `tensoropt-opt --emit` wrote.

    ``dims`` fixes symbolic dimensions of the inputs, or gives their range: ``(1, 4096)`` is 1 to
    4096, ``range(8, 65, 8)`` the multiples of 8 up to 64. Times are then for the middle of the
    range, memory for its end. ``x:0`` is an unnamed dimension of ``x``. ``weights`` is the model
    that a text was made of; without it a text cannot become a plan. ``rules`` is a file of rules
    for operators of other domains, which stay registered in this process. ``progress`` reports on
    stderr, or is a function that is called with lines of text. Raises :class:`UserError`.
    """
    from tensoropt.compiler.support.installation import check_installation

    check_installation()
    if not isinstance(path, str | os.PathLike):
        raise UserError(
            f"load: expected the path of a file, got: {type(path).__name__} (a model in memory has "
            "to be saved first: onnx.save(model, 'model.onnx'))"
        )
    model = _opened(
        Path(path),
        _checked(dims or {}),
        None if weights is None else Path(weights),
        None if rules is None else Path(rules),
    )
    with reporting_to(progress) as say:
        say(f"reading {path}")
        model.read()
    return model


def _opened(
    path: Path, dims: Mapping[str, Sizes], weights: Path | None, rules: Path | None
) -> Model:
    """Return a model that has not been read, with its rules loaded."""
    from tensoropt.compiler.sharding.rule.files import load_rules

    with _preparing:
        load_rules(rules, keeps=True)
    return Model(path, dims, weights, rules=rules)


_preparing = threading.RLock()
"""Held while a model is read and prepared: rules, and the child process of native code, belong to
the process."""


Given = int | Sequence[int] | range
"""A size, or the sizes of a dimension: (first, last), or a range."""


def _checked(dims: Mapping[str, Given]) -> dict[str, Sizes]:
    return parse_ranges([f"{name}={_text(name, sizes)}" for name, sizes in dims.items()])


def _text(name: str, given: Given) -> str:
    sizes = plain(given)
    if isinstance(sizes, range) and sizes:
        return sizes_text(sizes)
    if isinstance(sizes, tuple | list) and len(sizes) == 2:
        return f"{sizes[0]}..{sizes[1]}"
    if isinstance(sizes, range | tuple | list):
        raise UserError(
            f"dims: '{name}': expected a size, (first, last) or a range of sizes, got: {sizes}"
        )
    return str(sizes)


@dataclass
class _Read:
    """An imported module, and its text if it was MLIR text."""

    module: ir.Module
    text: str | None


class Model:
    """A model to split over devices; :func:`load` returns it.

    The file is read once for inference and once for training; searches share the modules. Calls of
    several threads are safe: calls of one model take turns. A copy is the model itself. A pickled
    model is its file and the arguments of :func:`load`: unpickling reads the file again.
    """

    def __init__(
        self,
        path: Path,
        dims: Mapping[str, Sizes],
        weights: Path | None = None,
        tracing: Mapping[str, Any] | None = None,
        rules: Path | None = None,
    ) -> None:
        """Create a model; ``tracing`` are the options of :class:`Compilation` for printing."""
        self.path, self.dims = path, dict(dims)
        self._weights = path if weights is None and not is_text(path) else weights
        self._is_given = weights is not None
        self._rules = rules
        self._tracing = dict(tracing or {})
        self._lock = threading.RLock()
        self._modules: dict[bool, _Read] = {}
        self._programs: dict[BuildTrainingStepPass | FuseAttentionPass | None, Program] = {}

    def __repr__(self) -> str:
        dims = f", dims={self.dims}" if self.dims else ""
        return f"load('{self.path}'{dims})"

    def __copy__(self) -> Model:
        return self

    def __deepcopy__(self, memo: object) -> Model:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        weights, rules = self._weights if self._is_given else None, self._rules
        paths = [None if path is None else path.absolute() for path in (weights, rules)]
        return _opened, (self.path.absolute(), self.dims, *paths)

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.name

    @property
    def inputs(self) -> tuple[End, ...]:
        """The inputs of the model; each has a name, a dtype and a shape of sizes and names."""
        return self._ends("arg_attrs")

    @property
    def outputs(self) -> tuple[End, ...]:
        """The outputs of the model, described like `inputs`."""
        return self._ends("res_attrs")

    def _ends(self, attributes: str) -> tuple[End, ...]:
        with self._lock:
            return tuple(ends_of(self.program().module, attributes))

    @documented(SearchArguments)
    def frontier(
        self,
        devices: int | str | None = None,
        device: str | Path | Sequence[str | Path] | None = None,
        *,
        memory: int | str | None = None,
        train: Training | None = None,
        also: Sequence[Model] = (),
        progress: bool | Callable[[str], None] = False,
        **options: Unpack[SearchArguments],
    ) -> Frontier:
        """Return all plans that no other plan beats in both time and memory, sorted by time.

        The plans may be of several forms of the model: ``also`` are others, such as one with caches
        of 8 bits. Plans that need more than ``memory`` are left out. Without it, plans above the
        capacity of the device are marked, and are neither picked nor compiled. If no plan fits,
        the search goes on with recomputation, micro-batches and stages, as far as these are not
        given; ``added`` of the frontier has its choice. Raises :class:`UserError`. Ctrl-C raises
        :class:`Interrupted`, with the points found so far.
        """
        given = {"devices": devices, "device": device, "memory": memory, "model": self._weights}
        batches = train.micro_batches if isinstance(train, Training) else None
        given["accumulates"] = are_several(str(batches or 1))
        request = make_request(given | options, Interface.PYTHON)
        with reporting_to(progress) as say:
            return find_fitting(self.forms(also), Asked(request, train), say, time.monotonic())

    @documented(SearchLimits)
    def fewest_devices(
        self,
        memory: int | str | None = None,
        device: str | Path | Sequence[str | Path] | None = None,
        *,
        most: int | None = None,
        train: Training | None = None,
        progress: bool | Callable[[str], None] = False,
        **options: Unpack[SearchLimits],
    ) -> Frontier:
        """Return the frontier on the fewest devices, up to ``most`` (64), on which a plan fits.

        Raises :class:`UserError` if ``memory``, by default the capacity of the device, is too
        little for any number of devices.
        """
        given = {"objective": "devices", "devices": most, "device": device, "memory": memory}
        request = make_request(given | options, Interface.PYTHON)
        with reporting_to(progress) as say:
            return frontier_of(self, Asked(request, train), say)

    @documented(SearchLimits)
    def profile(
        self,
        devices: int = 8,
        device: str | Path | Sequence[str | Path] | None = None,
        *,
        memory: int | str | None = None,
        train: Training | None = None,
        progress: bool | Callable[[str], None] = False,
        **options: Unpack[SearchLimits],
    ) -> Scaling:
        """Return the frontiers on 1, 2, 4, ... devices, up to ``devices``."""
        given = {"devices": devices, "device": device, "memory": memory}
        request = make_request(given | options, Interface.PYTHON)
        with reporting_to(progress) as say:
            program = self.program(step_of(train, request), say, request.description)
            with program.lock:
                return Scaling(self.name, program, [*program.profile(request, say)])

    @documented()
    def family(
        self,
        directory: str | Path,
        train: Training,
        devices: int = 8,
        device: str | Path | Sequence[str | Path] | None = None,
        *,
        memory: int | str | None = None,
        with_leanest: bool = False,
        progress: bool | Callable[[str], None] = False,
    ) -> Scaling:
        """Write the fastest plans for 1, 2, 4, ... devices into a folder, for an elastic job.

        ``with_leanest`` adds the leanest plan for each number. Returns the frontiers.
        """
        from tensoropt.compiler.pipeline.family import check_family_replaceable

        given = {"devices": devices, "device": device, "memory": memory}
        request = make_request(given, Interface.PYTHON)
        check_family_replaceable(Path(directory))
        step = step_of(train, request)
        self.check_weights(Path(directory), trains=True)
        with reporting_to(progress) as say, self._lock:
            program, rows = self.program(step, say), []
            with program.family(Path(directory), request, say, with_leanest=with_leanest) as add:
                for row in program.profile(request, say):
                    rows.append(row)
                    add(row)
            return Scaling(self.name, program, rows)

    def search(self, program: Program, request: Request, report: SearchReport) -> Frontier:
        """Return the frontier of a ``program`` of this model, and record it in ``report``."""
        try:
            program.search(request, report)
        except KeyboardInterrupt:
            raise interrupt_with(self.name, program, report) from None
        except DoesNotFitError as error:
            if report.result is not None:
                error.frontier = Frontier.from_report(self.name, program, report)
            raise
        frontier = Frontier.from_report(self.name, program, report)
        return frontier.limit(frontier.request.memory_bytes)

    @documented()
    def service(
        self,
        level: ServiceLevel,
        devices: int = 8,
        device: str | Path | Sequence[str | Path] | None = None,
        *,
        memory: int | str | None = None,
        launch: str | None = None,
        also: Sequence[Model] = (),
        progress: bool | Callable[[str], None] = False,
    ) -> Service:
        """Return the deployments of a decoder for a service ``level``, on up to ``devices``.

        A deployment is a number of replicas of a plan. Each replica continues many texts. ``also``
        are other forms of the model, such as one with caches of 8 bits.
        """
        given = {"devices": devices, "device": device, "memory": memory, "launch": launch}
        request = make_request(given, Interface.PYTHON)
        with reporting_to(progress) as say:
            return self.deployments(level, request, say, also)

    def deployments(
        self, level: ServiceLevel, request: Request, say: Say, also: Sequence[Model] = ()
    ) -> Service:
        """Return the deployments that `service` describes, for a checked ``request``."""
        from tensoropt.compiler.api.service import Sized, find_deployments

        def sized(model: Model) -> Sized:
            device = request.description
            return lambda sizes: model.with_sizes(sizes).program(device=device)

        forms = [*map(sized, self.forms(also).values())]
        return find_deployments(self.name, forms, level, request, say)

    def forms(self, also: Sequence[Model]) -> dict[str, Model]:
        """Return this model and other forms of it, by name.

        Raises :class:`UserError` for two of one name, which no report could tell apart.
        """
        found = {form.name: form for form in (self, *also)}
        if len(found) <= len(also):
            names = ", ".join(str(form.path) for form in (self, *also))
            raise UserError(f"--also: expected files with different names, got: {names}")
        return found

    def with_sizes(self, dims: Mapping[str, Sizes]) -> Model:
        """Return this model with more sizes of symbolic dimensions, itself for none."""
        if not dims:
            return self
        weights = self._weights if self._is_given else None
        return Model(self.path, {**self.dims, **dims}, weights, self._tracing, self._rules)

    def read(self, *, trains: bool = False) -> ir.Module:
        """Return the module in the file, unprepared; with ``trains``, for a training step."""
        with self._lock:
            if trains not in self._modules:
                with _preparing:
                    self._modules[trains] = self._loaded(trains)
            return self._modules[trains].module

    def _loaded(self, trains: bool) -> _Read:
        module, text = loaded(self.path, self.dims, training=trains)
        if self._is_given and self._weights is not None:
            from tensoropt.compiler.pipeline.export import check_weights

            check_weights(module, self._weights, training=trains)
        return _Read(module, text)

    def program(
        self,
        step: BuildTrainingStepPass | None = None,
        say: Say = silent,
        device: Device | None = None,
    ) -> Program:
        """Return the program to search: the model itself, or the training step of ``step``.

        In inference, long attention is one operation if ranks on ``device`` have a kernel for it.
        """
        fusion = self._fusion(device) if step is None else None
        key = step or fusion
        with self._lock:
            if key not in self._programs:
                with _preparing:
                    again = partial(self.program, step, device=device)
                    self._programs[key] = self._prepare(step, fusion, say, again)
            return self._programs[key]

    def _fusion(self, device: Device | None) -> FuseAttentionPass | None:
        """Return the pass that is for a device; only our runtime has the kernels."""
        is_ours = self._tracing.get("target", RUNTIME) == RUNTIME
        return FuseAttentionPass.for_inference(device) if device is not None and is_ours else None

    def _prepare(
        self,
        step: BuildTrainingStepPass | None,
        fusion: FuseAttentionPass | None,
        say: Say,
        again: Callable[[], Program],
    ) -> Program:
        trains = step is not None
        self.check_searchable(trains=trains)
        source = self._source(trains)
        try:
            with source.placed():
                compilation, module, notes = self._build(source, step, fusion, say)
        except BaseException:
            self._modules.pop(trains, None)  # passes have changed it in part
            raise
        return Program(source, module, compilation, notes, self._lock, again)

    def is_searched(self, *, trains: bool = False) -> bool:
        """Return whether this is text that already has strategies."""
        return _phase_index(self.read(trains=trains)) >= _index_of("search")

    def check_searchable(self, *, trains: bool = False) -> None:
        """Refuse text that has passed the phases to be run."""
        module = self.read(trains=trains)
        if self.is_searched(trains=trains):
            self._refuse(module, "the search")
        if trains and _phase_index(module) > _index_of("prepare"):
            self._refuse(module, "building a training step")

    def check_weights(self, directory: Path, *, trains: bool = False) -> None:
        """Raise UserError unless the files with the weights of a plan in ``directory`` exist."""
        source = self._source(trains)
        source.check_weights(directory, trains=self.builds_steps(trains=trains))

    def builds_steps(self, *, trains: bool) -> bool:
        """Return whether plans are for training: the module is, or becomes, a training step."""
        return trains or TRAINING.on(self.read(trains=trains).operation.attributes)

    def compile(self, directory: str | Path, say: Say = silent) -> None:
        """Write the plan of text that already has strategies."""
        source, directory = self._source(trains=False), Path(directory)
        self.check_weights(directory)
        with self._lock, source.placed():
            compilation = Compilation(**self._tracing)
            module = copy_of(self.read())
            compile_plan(module, source.weights_for(directory), directory, say, compilation)

    def _refuse(self, module: ir.Module, what: str) -> NoReturn:
        raise UserError(
            f"{self.path}: has passed the {passed_phase(module)} already, "
            f"expected IR from before {what}"
        )

    def _source(self, trains: bool) -> Source:
        self.read(trains=trains)
        return Source(self.path, self._modules[trains].text, self._weights)

    def _build(
        self,
        source: Source,
        step: BuildTrainingStepPass | None,
        fusion: FuseAttentionPass | None,
        say: Say,
    ) -> _Built:
        if step is not None and step.searched_batches is not None:
            return self._build_alternatives(source, step, step.searched_batches, say)
        compilation = Compilation(
            step is not None, step or BuildTrainingStepPass(), **self._tracing
        )
        module = self._prepared(compilation, say)
        notes = [*_notes(module), *decoder_notes(module, source.weights)]
        if step is not None and not open_dims(module):
            compilation, module, notes = trained(module, compilation, say)
        elif passed_phase(module) == "prepare":
            module = copy_of(module)  # another device may have no kernel
            passes = [] if fusion is None else [fusion, DcePass()]
            Pipeline(passes, seconds=compilation.seconds, say=say, phase="prepare").run(module)
        compilation.advance(module, "rules", say)
        return compilation, module, [*missing_files(module), *notes]

    def _build_alternatives(
        self, source: Source, step: BuildTrainingStepPass, searched: str, say: Say
    ) -> _Built:
        """Return the module with one alternative per searched number of micro-batches.

        Each alternative is the training step of the model with the batch size of a micro-batch.
        """
        from tensoropt.compiler.importer.batch import batch_of
        from tensoropt.compiler.program.samples import check_samples

        if source.text is not None:
            raise UserError(f"{self.path}: --micro-batches: expected a number for MLIR text")
        name, samples = batch_of(self.path, self.dims)
        numbers, programs = numbers_of(searched, samples), list[Program]()
        for number in numbers:
            own = replace(step, micro_batches=number, searched_batches=None)
            model = self if number == 1 else self.with_sizes({name: samples // number})
            programs.append(model.program(own, _prefixed(say, f"micro-batches {number}")))
        first = programs[0]
        if samples > 1:
            whole = replace(step, micro_batches=1, searched_batches=None)
            # Samples meet only in a batch of several.
            several = first if samples > numbers[0] else self.program(whole, say)
            is_mean = step.spec.loss.kind != "output"
            check_samples(next(iter(several.graphs.values())), is_mean=is_mean)
        module = unite_steps([program.module for program in programs])
        notes = [*first.notes, *batch_notes(first.module)]
        return first.compilation, module, notes

    def _prepared(self, compilation: Compilation, say: Say) -> ir.Module:
        """Prepare the module for inference or training in place, and return it."""
        module = self.read(trains=compilation.trains)
        compilation.advance(module, "prepare", say)
        try:
            check_ends(module)
        except UserError as error:
            raise UserError(f"{self.path}: {error}") from None
        return module


def _prefixed(say: Say, prefix: str) -> Say:
    return lambda text: say(f"{prefix}, {text}")


_Built = tuple[Compilation, ir.Module, list[str]]
"""A compilation, the module that it has prepared for the search, and notes on it."""


def trained(module: ir.Module, compilation: Compilation, say: Say) -> _Built:
    """Return the training step of a prepared ``module``, with frozen tables, and notes on it.

    The compilation is the one with this step.
    """
    step, tables = freeze_tables(compilation.step, module)
    compilation, made = replace(compilation, step=step), copy_of(module)
    compilation.advance(made, "train", say)
    return compilation, made, [*training_notes(module, made, step.precision, tables)]


def _notes(module: ir.Module) -> list[str]:
    """Return the notes on open sizes and loop bodies of a prepared module."""
    (kept, read), names = open_tokens(module), open_dims(module)
    tokens = {term for name in (*kept, *read) for term in terms(name)}
    lengths = [name for name in kept if name in names]
    sizes = [name for name in names if name not in {*open_heads(module), *tokens}]
    turns = bodies.open_turns(module)
    lines = (open_sizes, sizes), (open_lengths, lengths), (open_turns, turns)
    return [line(found) for line, found in lines if found]


def _phase_index(module: ir.Module) -> int:
    return _index_of(passed_phase(module))


def _index_of(phase: str) -> int:
    return list(PHASES).index(phase)
