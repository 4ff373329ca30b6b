"""Entry points of the pipeline: from a model file, or text of any phase, to a plan folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.compiler.pipeline.phases import Compilation, Say
from tensoropt.compiler.pipeline.text import load_text, new_context, parse_text, read_text
from tensoropt.dialects.mlir import ir
from tensoropt.passes.pipeline import verify
from tensoropt.passes.search_strategies import settle
from tensoropt.runtime.plan.dims import Sizes

if TYPE_CHECKING:
    from tensoropt.compiler.planning.request import Request
    from tensoropt.compiler.search.frontier.search import FrontierResult
    from tensoropt.passes.build_training_step import BuildTrainingStepPass

__all__ = [
    "advance",
    "compile_plan",
    "frontier",
    "is_text",
    "load",
    "loaded",
    "new_context",
    "parse_text",
    "run_phase",
    "settle",
    "train",
]


def _silent(text: str) -> None:
    """Report nothing."""


def is_text(path: Path) -> bool:
    """Return whether ``path`` is MLIR text, in a file or ``-`` for stdin, not an ONNX model."""
    return path.suffix == ".mlir" or str(path) == "-"


def load(path: Path, dims: Mapping[str, Sizes], *, training: bool = False) -> ir.Module:
    """Return the module of an ``.onnx`` model, or of MLIR text of any phase, in a new context.

    With ``training``, a model is converted to the operators that have gradients, and its shapes
    must be static.
    """
    return loaded(path, dims, training=training)[0]


def loaded(
    path: Path, dims: Mapping[str, Sizes], *, training: bool = False
) -> tuple[ir.Module, str | None]:
    """Return the module as :func:`load` does, and its text if it was MLIR text."""
    with new_context():
        if is_text(path):
            text = read_text(path)
            return load_text(path, text), text
        from tensoropt.compiler.importer.importer import import_model

        module = import_model(path, dims=dims, training=training)
        verify(module)
        return module, None


def advance(module: ir.Module, last: str) -> None:
    """Run all phases up to ``last`` that ``module`` has not passed, except `train`."""
    Compilation().advance(module, last)


def run_phase(module: ir.Module, phase: str, *, training: bool = False) -> None:
    """Run the passes of one phase without options on ``module``."""
    Compilation(trains=training).run(module, phase)


def train(module: ir.Module, step: BuildTrainingStepPass) -> None:
    """Turn a prepared ``module`` into the training step of ``step``, with all alternatives, and add
    the rules of its operations."""
    Compilation(trains=True, step=step).advance(module, "rules")


def frontier(module: ir.Module, request: Request, say: Say = _silent) -> FrontierResult:
    """Return the frontier of ``module``, which has rules and is not changed."""
    from tensoropt.compiler.planning import objectives
    from tensoropt.compiler.search.frontier.steps import read_graphs

    return objectives.frontier(read_graphs(module), request, say)


def compile_plan(
    module: ir.Module,
    weights: Path,
    directory: Path,
    say: Say = _silent,
    compilation: Compilation | None = None,
) -> None:
    """Run the remaining phases on ``module``, which has strategies, and write its plan.

    ``weights`` is the model that it was imported from.
    """
    from tensoropt.compiler.exporter.plan.writer import check_replaceable
    from tensoropt.compiler.pipeline.export import export_plan

    check_replaceable(directory)
    compilation = compilation or Compilation()
    compilation.advance(module, "partition", say)
    export_plan(module, weights, directory, say, compilation.target)
