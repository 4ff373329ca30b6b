"""Export of MLIR as ONNX files: a whole model, or the graph and the weights of one rank."""

from __future__ import annotations

from collections.abc import Container, Mapping
from os import PathLike
from pathlib import Path

import onnx

from tensoropt.compiler.exporter.attention_functions import add_attention_functions
from tensoropt.compiler.exporter.collectives import RankLowerings
from tensoropt.compiler.exporter.plan_weights import PlanWeights
from tensoropt.compiler.exporter.safetensors_file import Part, write_safetensors
from tensoropt.compiler.exporter.tensorrt import TARGET, TensorrtLowerings, check_operators
from tensoropt.compiler.exporter.weight_file import WeightFile
from tensoropt.compiler.exporter.weights import ParameterSource, length
from tensoropt.compiler.protos.emitter import Argument, Emitter, Lowering, Store, arguments
from tensoropt.compiler.protos.types import static_shape
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import function, opsets
from tensoropt.dialects.topt import keys
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.collectives import DOMAIN

__all__ = [
    "RUNTIME",
    "TARGETS",
    "export_model",
    "export_rank",
    "export_state",
    "export_whole_state",
]

RUNTIME = "onnxruntime"
TARGETS = (RUNTIME, TARGET)
"""The runtimes for the graphs of ranks."""


def export_model(
    module: ir.Module, path: str | PathLike[str], source: ParameterSource
) -> list[Path]:
    """Write the unpartitioned ``module`` to ``path``; return the files written.

    The weights are copied from ``source`` in pieces, into ``<path>.data``. Equal modules and
    weights have equal bytes.
    """
    target = Path(path)
    weights = WeightFile(target.with_name(target.name + ".data"), target.name + ".data", source)
    try:
        _write(module, target, lambda argument: weights.add(argument.name))
    except BaseException:  # a file is kept only on success
        weights.path.unlink(missing_ok=True)
        raise
    finally:
        weights.close()
    return [target, weights.path] if weights.path.exists() else [target]


def export_rank(
    module: ir.Module,
    rank: int,
    weights: PlanWeights,
    part: str = "",
    target: str = RUNTIME,
    meshes: int = 1,
) -> Path:
    """Write the graph of ``rank`` from a partitioned ``module``; return its file.

    The file is ``rank{r}.onnx`` in the folder of the plan's ``weights``, which store the weights
    that the graph reads; ``part``, such as ``.update``, comes before the suffix. ``target``, one of
    :data:`TARGETS`, runs the graph. There are ``meshes`` of ranks, one for each
    stage or replica. Raises :class:`UserError` for a parameter without a layout, and for operators
    that the target lacks.
    """

    place = rank % weights.mesh.size

    def store(argument: Argument) -> onnx.TensorProto:
        layout = _checked_layout(argument, place, weights)
        return weights.add(argument.name, layout, place)

    with module.context:
        lowerings, domains = _lowerings(module, weights.mesh, rank, target, meshes)
    path = weights.directory / f"rank{rank}{part}.onnx"
    _write(module, path, store, lowerings, domains)
    return path


def _lowerings(
    module: ir.Module, mesh: Mesh, rank: int, target: str, meshes: int
) -> tuple[dict[str, Lowering], dict[str, int]]:
    """Return the lowerings of a rank's operations, and the domains that they need."""
    opset = opsets(module)[""]
    if target == RUNTIME:
        return RankLowerings(mesh, rank, opset, meshes).table(), {DOMAIN: 1}
    check_operators(module)
    return TensorrtLowerings(mesh, rank, opset).table(), {}


def export_state(
    module: ir.Module, rank: int, weights: PlanWeights, names: Container[str] | None = None
) -> Path:
    """Write the initial state of ``rank`` in a partitioned training step; return the file.

    The file, ``weights/rank{r}.safetensors`` in the folder of the plan's ``weights``, has the
    rank's parts of the parameters and buffers; only of those among ``names``, if given.
    """
    parts, place = [], rank % weights.mesh.size
    for argument in _initial_state(module):
        if names is None or argument.name in names:
            layout = _checked_layout(argument, place, weights)
            parts.append(Part(argument.name, weights.cuts(argument.name, layout, place)))
    target = weights.directory / "weights" / f"rank{rank}.safetensors"
    write_safetensors(target, parts, weights.source)
    return target


def export_whole_state(
    module: ir.Module, path: Path, source: ParameterSource, metadata: Mapping[str, str]
) -> None:
    """Write the whole initial state of a training step to ``path``.

    ``module`` may be partitioned or not. Equal modules, weights and ``metadata`` have equal bytes.
    """
    names = [argument.name for argument in _initial_state(module)]
    parts = [Part(name, [slice(0, size) for size in source.shape(name)]) for name in names]
    write_safetensors(path, parts, source, metadata)


def _initial_state(module: ir.Module) -> list[Argument]:
    """Return the parameters and buffers of a training step: all other state starts as zeros."""
    return [
        argument
        for argument in arguments(function(module))
        if keys.STATE.get(argument.attributes) in ("parameter", "buffer")
    ]


def _write(
    module: ir.Module,
    target: Path,
    store: Store,
    lowerings: Mapping[str, Lowering] | None = None,
    domains: Mapping[str, int] | None = None,
) -> None:
    with module.context, ir.Location.unknown():
        emitter = Emitter(module, lowerings)
        emitter.opsets.update(domains or {})
        emitter.function(store)
        emitter.describe_values()
        model = emitter.model()
        add_attention_functions(model)
        try:
            target.write_bytes(model.SerializeToString(deterministic=True))
        except BaseException:  # a file is kept only on success
            target.unlink(missing_ok=True)
            raise


def _checked_layout(argument: Argument, rank: int, weights: PlanWeights) -> Layout:
    """Return the layout of a parameter; raise unless the argument has the type of its part."""
    if not keys.LAYOUT.on(argument.attributes):
        raise UserError(f"parameter '{argument.name}' has no topt.layout, run partition first")
    layout = keys.LAYOUT.of(argument.attributes)
    local = [*map(length, weights.cuts(argument.name, layout, rank))]
    if static_shape(argument.value.type) != local:
        raise UserError(
            f"parameter '{argument.name}' does not match the weights of the model, "
            f"expected shape {local}, got: {argument.value.type}"
        )
    return layout
