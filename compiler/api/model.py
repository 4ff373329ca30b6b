"""A model to plan for: what `tensoropt.load` returns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tensoropt.compiler.api.asking import ask
from tensoropt.compiler.api.frontier import Frontier, found_so_far
from tensoropt.compiler.api.program import Program, Say, Source, silent
from tensoropt.compiler.api.scaling import Scaling
from tensoropt.compiler.api.training import Training, step_of
from tensoropt.compiler.api.waiting import said_to
from tensoropt.compiler.cost import bodies
from tensoropt.compiler.exporter.plan.describe import End, check_ends, ends_of
from tensoropt.compiler.importer.dimensions import open_dims
from tensoropt.compiler.pipeline.driver import compile_plan, is_text, loaded
from tensoropt.compiler.pipeline.family import check_family_replaceable
from tensoropt.compiler.pipeline.phases import PHASES, Compilation
from tensoropt.compiler.report.decoders import decoder_notes
from tensoropt.compiler.report.notes import open_sizes, open_turns
from tensoropt.compiler.report.training import batch_notes, training_notes
from tensoropt.compiler.shapes.caches import open_heads
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.alternatives import united
from tensoropt.compiler.training.cut import argument_names, copy_of
from tensoropt.compiler.training.micro_batches import numbers_of
from tensoropt.compiler.training.spec import (
    check_patterns,
    check_rows,
    parse_patterns,
    pattern_of,
)
from tensoropt.compiler.training.tables import frozen_tables, rows_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.keys import TRAINING
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.passes.pipeline import passed_phase
from tensoropt.passes.search_strategies import SearchReport
from tensoropt.runtime.plan.dims import Sizes, parse_ranges, sizes_text

if TYPE_CHECKING:
    from tensoropt.compiler.search.frontier.request import Request

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

    ``dims`` fixes symbolic dimensions of its inputs, or says what sizes they may have:
    ``(1, 4096)`` from 1 to 4096, ``range(8, 65, 8)`` the multiples of 8 up to 64. Times are then
    those of the middle, memory that of the end. ``x:0`` is an unnamed dimension of ``x``.
    ``weights`` is the model that a text was made of, without which it cannot become a plan.
    ``rules`` is a file of rules for operators of other domains, for this process from now on.
    ``progress`` reports on stderr, or to what it is called with lines of text. Raises
    :class:`UserError`.
    """
    from tensoropt.compiler.sharding.rule.files import load_rules
    from tensoropt.compiler.support.installation import check_installation

    check_installation()
    if not isinstance(path, str | os.PathLike):
        raise UserError(
            f"load: expected the path of a file, got: {type(path).__name__} (a model in memory has "
            "to be saved first: onnx.save(model, 'model.onnx'))"
        )
    load_rules(None if rules is None else Path(rules))
    model = Model(Path(path), _checked(dims or {}), None if weights is None else Path(weights))
    with said_to(progress) as say:
        say(f"reading {path}")
        model.read()
    return model


Given = int | tuple[int, int] | range
"""A size, or the sizes that a dimension may have: first and last, or all of a range."""


def _checked(dims: Mapping[str, Given]) -> dict[str, Sizes]:
    return parse_ranges([f"{name}={_text(name, sizes)}" for name, sizes in dims.items()])


def _text(name: str, sizes: Given) -> str:
    if isinstance(sizes, range) and sizes:
        return sizes_text(sizes)
    if isinstance(sizes, tuple) and len(sizes) == 2:
        return f"{sizes[0]}..{sizes[1]}"
    if isinstance(sizes, range | tuple):
        raise UserError(
            f"dims: '{name}': expected a size, (first, last) or a range of sizes, got: {sizes}"
        )
    return str(sizes)


@dataclass
class _Read:
    """A module as it was read, and the text that it was, if it was one."""

    module: ir.Module
    text: str | None


class Model:
    """A model that is to be spread over devices; made by :func:`load`.

    A file is read once for inference, and once for training; searches share what was read.
    """

    def __init__(
        self,
        path: Path,
        dims: Mapping[str, Sizes],
        weights: Path | None = None,
        tracing: Mapping[str, Any] | None = None,
    ) -> None:
        """``tracing`` are options of :class:`Compilation`: what is printed while passes run."""
        self.path, self.dims = path, dict(dims)
        self._weights = path if weights is None and not is_text(path) else weights
        self._is_given = weights is not None
        self._tracing = dict(tracing or {})
        self._modules: dict[bool, _Read] = {}
        self._programs: dict[BuildTrainingStepPass | None, Program] = {}

    def __repr__(self) -> str:
        dims = f", dims={self.dims}" if self.dims else ""
        return f"load('{self.path}'{dims})"

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.name

    @property
    def inputs(self) -> tuple[End, ...]:
        """What the model is given: of each a name, a dtype and a shape of sizes and names."""
        return tuple(ends_of(self.program().module, "arg_attrs"))

    @property
    def outputs(self) -> tuple[End, ...]:
        """What the model gives, as `inputs`."""
        return tuple(ends_of(self.program().module, "res_attrs"))

    def frontier(
        self,
        devices: int | None = None,
        device: str | Path | Sequence[str | Path] | None = None,
        *,
        mesh: str | int | Sequence[int] | None = None,
        memory: int | str | None = None,
        search: str | None = None,
        epsilon: float | None = None,
        search_time: float | None = None,
        search_memory: int | str | None = None,
        seed: int | None = None,
        strategies: str | Path | None = None,
        pins: str | Path | Sequence[str | Path] = (),
        forbid: str | Sequence[str] = (),
        overlap: str | None = None,
        train: Training | None = None,
        progress: bool | Callable[[str], None] = False,
    ) -> Frontier:
        """Return all plans that no other one beats in both time and memory, sorted by time.

        ``devices`` (4) are searched in every mesh, or in ``mesh`` alone, such as ``"2x4"``.
        ``device`` is the name of a description (``"cpu"``), the path of one, or a list of several
        measured on the same kind of machine. ``memory`` is what one device may use, such as
        ``"16GiB"``: plans that need more are left out. ``epsilon`` is how far a point may lie
        from the exact frontier, 0 for exact; ``search_time`` the seconds to search for. Without
        both there is an answer after about ten seconds. ``search_memory`` is what it may take
        meanwhile, such as ``"4GiB"``, by default a quarter of the machine's. ``strategies`` is a
        plan whose strategies, edited or not, are taken in place of a search. ``pins`` fix single
        tensors and nodes, such as ``"wte.weight=S(0)@x"``, or are paths of files with pins;
        ``forbid`` rules out. ``overlap`` is ``"auto"``, or ``"off"`` to let no collective run
        beside operators. ``train`` plans a training step. ``progress`` reports on stderr, or to
        what it is called with lines of text.

        Raises :class:`UserError`; Ctrl-C raises :class:`Interrupted`, with what was found so far.
        """
        request = ask(
            devices=devices,
            device=device,
            mesh=mesh,
            memory=memory,
            search=search,
            epsilon=epsilon,
            search_time=search_time,
            search_memory=search_memory,
            seed=seed,
            strategies=strategies,
            pins=pins,
            forbid=forbid,
            overlap=overlap,
            model=self._weights,
        )
        return self._searched(request, train, progress)

    def fewest_devices(
        self,
        memory: int | str,
        device: str | Path | Sequence[str | Path] | None = None,
        *,
        most: int | None = None,
        epsilon: float | None = None,
        search_time: float | None = None,
        search_memory: int | str | None = None,
        train: Training | None = None,
        progress: bool | Callable[[str], None] = False,
    ) -> Frontier:
        """Return the frontier on the fewest devices, up to ``most`` (64), where something fits.

        Raises :class:`UserError` where ``memory``, of one device, is too little on all of them.
        """
        request = ask(
            objective="devices",
            memory=memory,
            device=device,
            devices=most,
            epsilon=epsilon,
            search_time=search_time,
            search_memory=search_memory,
        )
        return self._searched(request, train, progress)

    def profile(
        self,
        devices: int = 8,
        device: str | Path | Sequence[str | Path] | None = None,
        *,
        memory: int | str | None = None,
        epsilon: float | None = None,
        search_time: float | None = None,
        search_memory: int | str | None = None,
        train: Training | None = None,
        progress: bool | Callable[[str], None] = False,
    ) -> Scaling:
        """Return the frontiers on 1, 2, 4, ... devices, up to ``devices``."""
        request = ask(
            devices=devices,
            device=device,
            memory=memory,
            epsilon=epsilon,
            search_time=search_time,
            search_memory=search_memory,
        )
        with said_to(progress) as say:
            program = self.program(step_of(train, request), say)
            return Scaling(self.name, program, [*program.profile(request, say)])

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
        """Write the fastest plans for 1, 2, 4, ... devices into a folder: one elastic job's.

        ``with_leanest`` adds the leanest plan of each number. Returns what was found.
        """
        request = ask(devices=devices, device=device, memory=memory)
        check_family_replaceable(Path(directory))
        with said_to(progress) as say:
            program, rows = self.program(step_of(train, request), say), []
            with program.family(Path(directory), request, say, with_leanest=with_leanest) as add:
                for row in program.profile(request, say):
                    rows.append(row)
                    add(row)
            return Scaling(self.name, program, rows)

    def _searched(
        self, request: Request, train: Training | None, progress: bool | Callable[[str], None]
    ) -> Frontier:
        begun_s = time.monotonic()
        with said_to(progress) as say:
            program = self.program(step_of(train, request), say)
            report = SearchReport(say, begun_s, prices_pins=True)
            return self.search(program, request, report)

    def search(self, program: Program, request: Request, report: SearchReport) -> Frontier:
        """Return the frontier that a ``program`` of this model has, and tell ``report`` of it."""
        try:
            found = program.search(request, report)
        except KeyboardInterrupt:
            raise found_so_far(self.name, program, report) from None
        return Frontier.of(self.name, program, report, found)

    def read(self, *, trains: bool = False) -> ir.Module:
        """Return the module in the file, as it is there; with ``trains``, for a training step."""
        if trains not in self._modules:
            module, text = loaded(self.path, self.dims, training=trains)
            if self._is_given and self._weights is not None:
                from tensoropt.compiler.pipeline.export import check_weights

                check_weights(module, self._weights, training=trains)
            self._modules[trains] = _Read(module, text)
        return self._modules[trains].module

    def program(self, step: BuildTrainingStepPass | None = None, say: Say = silent) -> Program:
        """Return the program to search: the model itself, or the training step of ``step``."""
        if step not in self._programs:
            trains = step is not None
            self.check_searchable(trains=trains)
            source = self._source(trains)
            try:
                with source.placed():
                    self._programs[step] = self._made(source, step, say)
            except BaseException:
                del self._modules[trains]  # what is left of it is of no phase
                raise
        return self._programs[step]

    def is_searched(self, *, trains: bool = False) -> bool:
        """Whether this is text that has strategies already."""
        return _at(self.read(trains=trains)) >= _at_phase("search")

    def check_searchable(self, *, trains: bool = False) -> None:
        """Refuse text that has passed what is to be done."""
        module = self.read(trains=trains)
        if self.is_searched(trains=trains):
            self._refuse(module, "the search")
        if trains and _at(module) > _at_phase("prepare"):
            self._refuse(module, "building a training step")

    def builds_steps(self, *, trains: bool) -> bool:
        """Whether plans are for training: what is read is a training step, or becomes one."""
        return trains or TRAINING.on(self.read(trains=trains).operation.attributes)

    def compile(self, directory: str | Path, say: Say = silent) -> None:
        """Write the plan of text that has strategies already."""
        source, directory = self._source(trains=False), Path(directory)
        with source.placed():
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

    def _made(self, source: Source, step: BuildTrainingStepPass | None, say: Say) -> Program:
        if step is not None and step.searched_batches is not None:
            return self._cut(source, step, step.searched_batches, say)
        compilation = Compilation(
            step is not None, step or BuildTrainingStepPass(), **self._tracing
        )
        module = self._prepared(compilation, say)
        notes = [*_notes(module), *decoder_notes(module, source.weights)]
        if step is not None and not open_dims(module):
            frozen, trained = parse_patterns(step.freeze), parse_patterns(step.unfreeze)
            check_patterns("--freeze", frozen, argument_names(module))
            check_rows(step.one_spec.freeze_rows, rows_of(module))
            tables = frozen_tables(module, frozen, trained)
            patterns = [step.freeze, *map(pattern_of, tables)]
            step = replace(step, freeze=",".join(filter(None, patterns)))
            compilation = replace(compilation, step=step)
            module, notes = _trained(module, compilation, say, tables)
        compilation.advance(module, "rules", say)
        return Program(source, module, compilation, notes)

    def _cut(self, source: Source, step: BuildTrainingStepPass, searched: str, say: Say) -> Program:
        """Return the program of the steps that take the samples of the model in several numbers
        of micro-batches: each is that of the model for as many samples as one of them has."""
        from tensoropt.compiler.importer.batch import batch_of
        from tensoropt.compiler.search.problem.samples import check_samples

        if source.text is not None:
            raise UserError(f"{self.path}: --micro-batches: expected a number for MLIR text")
        name, samples = batch_of(self.path, self.dims)
        numbers, programs = numbers_of(searched, samples), list[Program]()
        for number in numbers:
            dims = {**self.dims, name: samples // number}
            own = replace(step, micro_batches=number, searched_batches=None)
            model = self if number == 1 else Model(self.path, dims, tracing=self._tracing)
            programs.append(model.program(own, _prefixed(say, f"micro-batches {number}")))
        first = programs[0]
        if samples > numbers[0]:
            is_mean = step.one_spec.loss.kind != "output"
            check_samples(next(iter(first.graphs.values())), is_mean=is_mean)
        module = united([program.module for program in programs])
        notes = [*first.notes, *batch_notes(first.module)]
        return Program(source, module, first.compilation, notes)

    def _prepared(self, compilation: Compilation, say: Say) -> ir.Module:
        """Return the module for inference or training, prepared; it stays so, to be copied."""
        module = self.read(trains=compilation.trains)
        compilation.advance(module, "prepare", say)
        try:
            check_ends(module)
        except UserError as error:
            raise UserError(f"{self.path}: {error}") from None
        return module


def _prefixed(say: Say, prefix: str) -> Say:
    return lambda text: say(f"{prefix}, {text}")


def _trained(
    module: ir.Module, compilation: Compilation, say: Say, tables: Sequence[str]
) -> tuple[ir.Module, list[str]]:
    """Return the training step of a prepared ``module``, and notes on it and its ``tables``."""
    made = copy_of(module)
    compilation.advance(made, "train", say)
    return made, [*training_notes(module, made, compilation.step.precision, tables)]


def _notes(module: ir.Module) -> list[str]:
    """Return what to say of the sizes and bodies of a prepared module."""
    heads, turns = open_heads(module), bodies.open_turns(module)
    names = [name for name in open_dims(module) if name not in heads]
    notes = [open_sizes(names)] if names else []
    return [*notes, open_turns(turns)] if turns else notes


def _at(module: ir.Module) -> int:
    return _at_phase(passed_phase(module))


def _at_phase(phase: str) -> int:
    return list(PHASES).index(phase)
