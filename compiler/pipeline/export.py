"""The export phase: from a partitioned module and the file with its weights to a plan folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tensoropt.compiler.cost.memory import program_memory
from tensoropt.compiler.exporter.plan.decoder_files import copy_tokenizer, encoder_entry, text_entry
from tensoropt.compiler.exporter.plan.describe import describe_caches, describe_module
from tensoropt.compiler.exporter.plan.stages import describe_stages, memory_of
from tensoropt.compiler.exporter.plan.training import describe_step
from tensoropt.compiler.exporter.plan.writer import (
    PLAN_FILE,
    plan_folder,
    write_document,
    write_plan,
)
from tensoropt.compiler.exporter.plan_weights import PlanWeights
from tensoropt.compiler.exporter.rank import RUNTIME, export_rank, export_state, export_whole_state
from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.compiler.pipeline.costs import node_costs
from tensoropt.compiler.pipeline.document import meshes_of, plan_document, predicted, stages_of
from tensoropt.compiler.pipeline.phases import OF_GRAPHS
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.cut import Parts, argument_names, copy_of, cut_step
from tensoropt.dialects import onnx
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import mesh_of
from tensoropt.dialects.topt.keys import (
    NAME,
    PARAM,
    REPLICA_DEVICES,
    REPLICAS,
    STATE,
    TRAINING,
)
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.passes.keep_whole import drop_whole, whole_of
from tensoropt.passes.pipeline import parse_pipeline, passed_phase
from tensoropt.runtime.plan.costs import COSTS
from tensoropt.runtime.plan.graphs import GRADIENTS
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.text.decoder import IDS
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["check_weights", "export_initial", "export_plan", "fill_training_plan"]

Say = Callable[[str], None]


def export_plan(
    module: ir.Module, weights: Path, directory: Path, say: Say, target: str = RUNTIME
) -> None:
    """Write ``directory``: the graphs of each rank, the weights, and plan.json.

    ``module`` is partitioned and not changed; ``weights`` is the model that it was imported from.
    The folder appears only when it is complete. An existing plan is replaced, anything else is
    refused. ``target`` runs the graphs; plan.json names it unless it is tensoropt's runtime.
    """
    trains = TRAINING.on(module.operation.attributes)
    if trains and target != RUNTIME:
        raise UserError(f"--target {target}: runs no training, expected no --train")
    if meshes_of(module) > 1 and target != RUNTIME:
        raise UserError(f"--target {target}: runs no stages and no replicas, expected one mesh")
    with plan_folder(directory) as folder:
        if trains:
            fill_training_plan(module, weights, folder, say)
        else:
            entries = _export_model(module, _program(module), folder, weights, say, target)
            write_document(folder / COSTS, node_costs(module, whole_of(module)))
            own = {} if target == RUNTIME else {"target": target}
            write_plan(folder, {**plan_document(module, weights), **own, **entries})


def fill_training_plan(
    module: ir.Module, weights: Path, folder: Path, say: Say, *, with_state: bool = True
) -> TrainingPlan:
    """Write the plan of a training step into an empty ``folder``, and return it.

    Without ``with_state`` the plan starts from a checkpoint, and has no parameters and buffers:
    :func:`export_initial` writes them. Raises :class:`UserError` if no run can train the plan.
    """
    program = _program(module)
    entries = _export_step(module, program, folder, weights, say, with_state=with_state)
    write_plan(folder, {**plan_document(module, weights), **entries})
    try:
        return TrainingPlan.from_plan(Plan.read(folder))
    except UserError as error:
        text = str(error).removeprefix(f"{folder / PLAN_FILE}: ")  # the folder is temporary
        raise UserError(f"no run can train this step: {text}") from None


def export_initial(
    module: ir.Module, weights: Path, path: Path, metadata: Mapping[str, str]
) -> None:
    """Write the whole initial state of a training step, with the ``metadata`` of a checkpoint."""
    export_whole_state(module, path, _source(module, weights), metadata)


def _program(module: ir.Module) -> ir.Module:
    """Return the program of the ranks in a partitioned ``module``, without ``@whole``."""
    program = copy_of(module)
    drop_whole(program)
    return program


def check_weights(module: ir.Module, weights: Path, *, training: bool) -> None:
    """Raise UserError unless ``weights`` has each parameter of ``module``, with its type.

    ``training``: a training step will be built of the module.
    """
    trains = training or TRAINING.on(module.operation.attributes)
    source = ParameterSource(weights, training=trains)
    names = set(source.names)
    whole = whole_of(module) if passed_phase(module) == "partition" else module
    for value, own in onnx.arguments(onnx.function(whole)):
        if PARAM.on(own) or STATE.get(own) in ("parameter", "buffer"):
            name = NAME.of(own)
            if name not in names:
                raise UserError(
                    f"--weights {weights}: expected the model that the text was made of, "
                    f"with a weight '{name}', got: none of that name"
                )
            wanted = ir.RankedTensorType(value.type)
            shape, element = source.shape(name), source.element(name)
            if list(shape) != list(wanted.shape) or element != element_of(str(wanted.element_type)):
                sizes = "x".join(map(str, shape)) or "no dimensions"
                raise UserError(
                    f"--weights {weights}: weight '{name}': expected {wanted}, "
                    f"got: {element.name} of {sizes}"
                )


def _source(module: ir.Module, weights: Path) -> ParameterSource:
    trains = TRAINING.on(module.operation.attributes)
    return ParameterSource(weights, training=trains)


def _plan_weights(module: ir.Module, weights: Path, folder: Path) -> PlanWeights:
    return PlanWeights(folder, mesh_of(module.operation), _source(module, weights))


def _export_model(
    module: ir.Module, program: ir.Module, folder: Path, weights: Path, say: Say, target: str
) -> dict[str, Any]:
    """Write the graphs and weights of all ranks; return their entries of plan.json."""
    if stages_of(module) > 1:
        return _export_stream(module, program, folder, weights, say)
    with _plan_weights(module, weights, folder) as stored:
        meshes = meshes_of(module)
        ranks = stored.mesh.size * meshes
        for rank in range(ranks):
            say(f"writing ranks: {rank + 1} of {ranks}")
            export_rank(program, rank, stored, target=target, meshes=meshes)
    described = _describe_model(module, folder, weights)
    return {
        "predicted": predicted(module, weights, program_memory(program)),
        **described,
        **_replicas(program),
    }


def _describe_model(module: ir.Module, folder: Path, weights: Path) -> dict[str, Any]:
    """Return the entries of inputs, outputs and texts; copy the tokenizer of a model of texts."""
    caches, described = describe_caches(whole_of(module)), describe_module(whole_of(module))
    has_texts = any(entry["name"] == IDS for entry in described["inputs"])
    if has_texts:
        copy_tokenizer(weights, folder)
    if caches:
        return {**described, "caches": caches, "text": text_entry(weights)}
    text = encoder_entry(weights) if has_texts else None
    return {**described, **({} if text is None else {"text": text})}


def _export_stream(
    module: ir.Module, program: ir.Module, folder: Path, weights: Path, say: Say
) -> dict[str, Any]:
    """Write the graphs and weights of inference in stages; return their entries of plan.json."""
    parts = _parts(program)
    with _plan_weights(module, weights, folder) as stored:
        _export_parts(parts, stages_of(module), stored, say)
    memory = memory_of(program, parts)
    return {
        "predicted": predicted(module, weights, memory.rank),
        **_describe_model(module, folder, weights),
        "stages": describe_stages(program, parts, memory),
    }


def _parts(program: ir.Module) -> Parts:
    """Return the programs of the graphs; with stages, each has its own order of collectives."""
    parts = cut_step(program)
    if parts.stages is not None:
        for part in parts.modules.values():
            for own in parse_pipeline(OF_GRAPHS, part.context):
                own.run(part)
    return parts


def _export_parts(
    parts: Parts,
    meshes: int,
    stored: PlanWeights,
    say: Say,
    export_more: Callable[[int, Iterable[ir.Module]], None] = lambda rank, own: None,
) -> None:
    """Write the graphs of each rank of ``meshes``; ``export_more`` writes its other files."""
    size = stored.mesh.size
    for rank in range(size * meshes):
        say(f"writing ranks: {rank + 1} of {size * meshes}")
        own = parts.of_stage(rank // size)
        for graph, part in own.items():
            suffix = "" if graph == GRADIENTS else f".{graph}"
            export_rank(part, rank, stored, suffix, meshes=meshes)
        export_more(rank, own.values())


def _export_step(
    module: ir.Module,
    program: ir.Module,
    folder: Path,
    weights: Path,
    say: Say,
    *,
    with_state: bool,
) -> dict[str, Any]:
    """Write the graphs of a training step for all ranks, and the initial state ``with_state``;
    return their entries of plan.json."""
    parts = _parts(program)
    with _plan_weights(module, weights, folder) as stored:

        def export_own_state(rank: int, own: Iterable[ir.Module]) -> None:
            if with_state:
                names = {name for part in own for name in argument_names(part)}
                export_state(program, rank, stored, names)

        _export_parts(parts, meshes_of(module), stored, say, export_own_state)
    memory = memory_of(program, parts)
    spec = BuildTrainingStepPass.read(module).spec
    return {
        "predicted": predicted(module, weights, memory.rank, memory.static),
        **describe_step(whole_of(module)).entries(
            spec, parts, "weights" if with_state else "checkpoint"
        ),
        **({} if parts.stages is None else {"stages": describe_stages(program, parts, memory)}),
        **_replicas(program),
    }


def _replicas(program: ir.Module) -> dict[str, Any]:
    """Return the entry ``replicas`` of plan.json, if there are any."""
    attributes = program.operation.attributes
    if not REPLICAS.on(attributes):
        return {}
    batches, devices = REPLICAS.of(attributes), REPLICA_DEVICES.of(attributes)
    return {"replicas": {"micro_batches": batches, "devices": devices}}
