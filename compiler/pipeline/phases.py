"""The phases of the compiler and their passes, in order; every compilation runs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TextIO

from tensoropt.compiler.exporter.rank import RUNTIME
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.keys import PLACES
from tensoropt.passes.base import Pass, PassError
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.passes.pipeline import Pipeline, parse_pipeline, passed_phase, set_passed_phase
from tensoropt.passes.search_strategies import SearchStrategiesPass

__all__ = [
    "OF_GRAPHS",
    "PHASES",
    "TRAINING_PHASES",
    "Compilation",
    "freeze_tables",
    "phases_after",
]

OF_GRAPHS = "combine-collectives,overlap-collectives,mark-order"
"""Passes of `partition` that run on each graph of a program in stages, after export has cut it."""

PHASES: Mapping[str, str] = {
    "import": "",
    "prepare": "verify-onnx,infer-shapes,fold-constants,reduce-bags,unpack-sequences,simplify,"
    "join-boxes,fuse-experts,unmerge-rows,fold-transposes,dce,block-attention,dce",
    "train": "build-training-step",
    "rules": "assume-sizes,schedule,add-rules,mark-caches",
    "search": "search-strategies",
    "reshard": "check-strategies,insert-reshards,optimize-reshards",
    "partition": f"check-strategies,keep-whole,partition,pad-once,dce,{OF_GRAPHS}",
}
"""The passes of each phase, as pipeline text; `train` is only for training. A module records the
last phase that it passed, and can be printed after each phase, read back, and continued."""

TRAINING_PHASES: Mapping[str, str] = {
    **PHASES,
    "prepare": PHASES["prepare"]
    .replace("reduce-bags", "reduce-bags{scatter=true}")
    .replace("simplify", "simplify{keep-dropout=true}")
    .replace("fold-transposes", "fold-transposes{all=true}"),
}
"""The passes of each phase if a training step is built."""

Say = Callable[[str], None]


@dataclass
class Compilation:
    """Runner of the phases on a module, with the requested printing.

    ``trains``: a training step is built. ``step`` and ``search`` are the passes of the phases that
    have options, `train` and `search`. ``target`` runs the graphs of a plan. ``seconds`` collects
    the time of each pass of all phases.
    """

    trains: bool = False
    step: BuildTrainingStepPass = field(default_factory=BuildTrainingStepPass)
    search: SearchStrategiesPass = field(default_factory=SearchStrategiesPass)
    target: str = RUNTIME
    print_after_all: bool = False
    print_after: Sequence[str] = ()
    stream: TextIO | None = None
    seconds: list[tuple[str, float]] = field(default_factory=list)

    def advance(self, module: ir.Module, last: str, say: Say = lambda text: None) -> None:
        """Run all phases that ``module`` has not passed yet, up to ``last``."""
        for phase in phases_after(passed_phase(module), last):
            if phase != "train" or self.trains:
                self.run(module, phase, say)

    def run(self, module: ir.Module, phase: str, say: Say = lambda text: None) -> None:
        """Run the passes of one phase, and record in the module that it has passed."""
        printing = (self.print_after_all, self.print_after, self.stream, self.seconds)
        try:
            passes = self._passes(phase, module)
            Pipeline(passes, *printing, say, f"phase {phase}").run(module)
        except PassError as error:
            cause = error.__cause__
            is_placeless = isinstance(cause, UserError) and not isinstance(cause, PassError)
            if phase == "search" and is_placeless:  # the request is at fault, not the program
                raise UserError(str(cause)) from None
            raise error from None
        set_passed_phase(module, phase)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Record the time of a block that is not a pass, such as a comparison of searches."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds.append((name, time.perf_counter() - start))

    def _passes(self, phase: str, module: ir.Module) -> Sequence[Pass]:
        if phase == "train":
            return [self.step]
        if phase == "search":
            return [self.search]
        phases = TRAINING_PHASES if self.trains else PHASES
        passes = parse_pipeline(phases[phase], module.context)
        if PLACES.on(module.operation.attributes):
            return [own for own in passes if own.name not in OF_GRAPHS.split(",")]
        return passes


def freeze_tables(
    step: BuildTrainingStepPass, module: ir.Module
) -> tuple[BuildTrainingStepPass, list[str]]:
    """Return ``step`` with the tables and masks of a prepared ``module`` frozen, and their names.

    Raises `UserError` for patterns and rows that match nothing.
    """
    from tensoropt.compiler.training import spec, tables
    from tensoropt.compiler.training.cut import argument_names

    frozen, trained = spec.parse_patterns(step.freeze), spec.parse_patterns(step.unfreeze)
    spec.check_patterns("--freeze", frozen, argument_names(module))
    spec.check_rows(step.spec.freeze_rows, tables.rows_of(module))
    found = tables.frozen_tables(module, frozen, trained)
    patterns = [step.freeze, *map(spec.pattern_of, found)]
    return replace(step, freeze=",".join(filter(None, patterns))), found


def phases_after(passed: str, last: str = "partition") -> Sequence[str]:
    """Return the phases from the one after ``passed`` up to ``last``."""
    names = list(PHASES)
    return names[names.index(passed) + 1 : names.index(last) + 1]
