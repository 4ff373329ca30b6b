"""From a model file to a frontier and a plan directory: the phases in order."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensoropt.compiler.pipeline.request import Chosen, Request
from tensoropt.compiler.pipeline.searching import compare, fewest_devices, frontier, profile
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.context import context
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import carried, function
from tensoropt.dialects.topt import RESHARD, keys
from tensoropt.passes.base import PassError
from tensoropt.passes.diagnostics import describe
from tensoropt.passes.pipeline import Pipeline, parse_pipeline, raised_by_mlir, verify

if TYPE_CHECKING:
    from tensoropt.compiler.search.frontier.search import FrontierPoint

__all__ = [
    "PHASES",
    "apply_point",
    "compare",
    "compile_plan",
    "fewest_devices",
    "frontier",
    "load",
    "new_context",
    "parse_text",
    "phase_of",
    "profile",
    "read_text",
    "run_phase",
]

PHASES: Mapping[str, str] = {
    "prepare": "verify-onnx,infer-shapes,fold-constants,simplify,fold-transposes,dce",
    "reshard": "insert-reshards,optimize-reshards",
    "partition": "partition,dce",
}
"""The passes of each phase, as pipeline text; `search` lies between `prepare` and `reshard`."""

PREPARE_TRAINING = (
    PHASES["prepare"]
    .replace("simplify", "simplify{keep-dropout=true}")
    .replace("fold-transposes", "fold-transposes{all=true}")
)
"""The passes of `prepare` where `train` follows it, which builds the training step."""

Say = Callable[[str], None]


def new_context() -> ir.Context:
    """Return a context for one compilation; single-threaded, so that its order never varies."""
    ctx = context()
    ctx.enable_multithreading(False)
    return ctx


def parse_text(text: str) -> ir.Module:
    """Return the module that MLIR ``text`` holds, in the current context; it is verified.

    It is parsed in a child first: MLIR does not survive what nests a hundred thousand deep.
    """
    from tensoropt.compiler.support import native

    try:
        native.call(_parse, text, seconds=native.seconds_for(text.count("\n")))
    except native.NativeError:
        pass  # said below, with its place
    except native.NativeFailureError as failure:
        raise PassError(f"MLIR's parser {failure}") from None
    try:
        module = ir.Module.parse(text)
    except ir.MLIRError as error:
        raise raised_by_mlir(error) from None
    verify(module)
    return module


def _parse(text: str) -> None:
    """Parse ``text`` to see whether that ends the process; runs in the child."""
    with new_context():
        ir.Module.parse(text)


def load(path: Path, dims: Mapping[str, int], *, training: bool = False) -> ir.Module:
    """Return the module of an ``.onnx`` model, or of MLIR text of any phase, in a new context.

    Text comes from an ``.mlir`` file, or from stdin for ``-``. With ``training``, a model is
    converted to the operators that have gradients, and its shapes must be static.
    """
    with new_context():
        if path.suffix == ".mlir" or str(path) == "-":
            return _parsed(path)
        from tensoropt.compiler.importer.importer import import_model

        module = import_model(path, dims=dims, training=training)
        verify(module)
        return module


def _parsed(path: Path) -> ir.Module:
    text = read_text(path)
    try:
        return parse_text(text)
    except PassError as error:
        # MLIR calls any text "-".
        name = "<stdin>" if str(path) == "-" else str(path)
        where = describe(error.location)
        where = f"{name}{where[1:]}" if where.startswith("-:") else where or name
        raise UserError(f"{where}: {error.message}") from None


def read_text(path: Path) -> str:
    """Return what an MLIR file, or stdin for ``-``, holds."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        name = "<stdin>" if str(path) == "-" else path
        raise UserError(f"{name}: expected MLIR text in UTF-8, got: other bytes") from None


def phase_of(module: ir.Module) -> str:
    """Return the phase that ``module`` has passed: ``import`` for all before `train` and search."""
    main = function(module)
    ops = [op.operation for op in main.regions[0].blocks[0]]
    if any(op.name == RESHARD for op in ops):
        return "reshard"
    if any(keys.STRATEGY.on(op.attributes) for op in ops):
        return "search"
    held = [own for side in ("arg_attrs", "res_attrs") for own in carried(main, side)]
    if any(keys.LAYOUT.on(own) for own in held):
        return "partition"
    return "train" if any(keys.STATE.on(own) for own in held) else "import"


def run_phase(module: ir.Module, phase: str, *, training: bool = False, **options: Any) -> None:
    """Run the passes of one phase over ``module``; ``options`` are those of :class:`Pipeline`."""
    text = PREPARE_TRAINING if training and phase == "prepare" else PHASES[phase]
    Pipeline(parse_pipeline(text, module.context), **options).run(module)


def apply_point(module: ir.Module, point: FrontierPoint, request: Request) -> None:
    """Write the strategies of ``point`` into ``module``, with its mesh and layouts."""
    from tensoropt.passes.search_strategies import annotate

    annotate(module, point, request.device_spec)


def compile_plan(module: ir.Module, chosen: Chosen, directory: Path, say: Say) -> None:
    """Write ``directory``: the graphs of each rank, the weights, and plan.json.

    ``module`` is prepared, and is spent afterwards. The folder appears only when it is complete;
    an existing plan is replaced, anything else is refused.
    """
    from tensoropt.compiler.exporter.plan.writer import plan_folder, write_plan
    from tensoropt.compiler.pipeline.training_steps import step_of

    with plan_folder(directory) as folder:
        module = step_of(module, chosen.request.training, chosen.point)
        apply_point(module, chosen.point, chosen.request)
        compiled = _compile_step if chosen.request.training else _compile_model
        write_plan(folder, compiled(module, chosen, folder, say))


def _compile_model(module: ir.Module, chosen: Chosen, folder: Path, say: Say) -> dict[str, Any]:
    """Write the graphs and weights of all ranks; return the document of the plan."""
    from tensoropt.compiler.cost.memory import program_memory
    from tensoropt.compiler.exporter.plan.describe import describe_module
    from tensoropt.compiler.exporter.rank import export_rank
    from tensoropt.compiler.exporter.weights import ParameterSource
    from tensoropt.compiler.pipeline.document import plan_document

    described = describe_module(module)
    _lower(module, say)
    source, mesh = ParameterSource(chosen.source), chosen.point.mesh
    for rank in range(math.prod(mesh)):
        say(f"writing rank {rank}")
        export_rank(module, rank, mesh, folder, source)
    return plan_document(chosen, described, program_memory(module))


def _compile_step(module: ir.Module, chosen: Chosen, folder: Path, say: Say) -> dict[str, Any]:
    """Write the two graphs of a training step for all ranks, and what it starts from."""
    from tensoropt.compiler.cost.memory import program_memory
    from tensoropt.compiler.exporter.plan.training import describe_step
    from tensoropt.compiler.exporter.rank import export_rank, export_state
    from tensoropt.compiler.exporter.weights import ParameterSource
    from tensoropt.compiler.pipeline.document import plan_document
    from tensoropt.compiler.pipeline.training_steps import spec_of
    from tensoropt.compiler.training.cut import cut_step
    from tensoropt.compiler.training.memory import static_parts

    described = describe_step(module)
    _lower(module, say)
    parts = cut_step(module)
    source, mesh = ParameterSource(chosen.source, training=True), chosen.point.mesh
    for rank in range(math.prod(mesh)):
        say(f"writing rank {rank}")
        export_rank(parts.gradients, rank, mesh, folder, source)
        export_rank(parts.update, rank, mesh, folder, source, ".update")
        export_state(module, rank, mesh, folder, source)
    memory = program_memory(module)
    spec = spec_of(chosen.request.training, chosen.point)
    entries = described.entries(spec, parts)
    return plan_document(chosen, entries, memory, static_parts(module, memory))


def _lower(module: ir.Module, say: Say) -> None:
    for phase in ("reshard", "partition"):
        say(f"phase {phase}")
        run_phase(module, phase)
