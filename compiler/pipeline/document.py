"""Entries of plan.json, in order, from a partitioned module."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.cost.memory import RankMemory
from tensoropt.compiler.search.frontier.points import FIELDS, describe_points
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.version import TOOL
from tensoropt.compiler.training.memory import StaticParts
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import mesh_of
from tensoropt.dialects.topt.keys import (
    DEVICE,
    NAMED_SIZES,
    PIPELINE,
    PLACES,
    RANGES,
    REPLICAS,
    SEARCH,
    TRAINING,
)
from tensoropt.passes.pins import read_pins
from tensoropt.passes.points import WrittenPoint, read_points
from tensoropt.runtime.plan.dims import parse_ranges
from tensoropt.runtime.plan.entries import DimEntry
from tensoropt.runtime.plan.plan import SCHEMA
from tensoropt.runtime.support.files import sha256_of

__all__ = ["meshes_of", "plan_document", "predicted", "stages_of"]


def plan_document(module: ir.Module, model: Path) -> dict[str, Any]:
    """Return the first entries of plan.json, up to the entries that describe the graphs.

    ``model`` is the file that the module was imported from.
    """
    attributes = module.operation.attributes
    mesh, found = mesh_of(module.operation), SEARCH.get(attributes)
    if found is None:
        raise UserError("the module has no topt.search, expected check-strategies to be run")
    pins = read_pins(module)
    return {
        "schema": SCHEMA,
        "tool": TOOL,
        "model": {"name": model.name, "sha256": sha256_of(model)},
        "device": load_device(DEVICE.of(attributes)).name,
        "mesh": {"shape": list(mesh.shape)},
        "ranks": mesh.size * meshes_of(module),
        "search": {name: found.get(name) for name in ("name", "seed", "epsilon")},
        "frontier": describe_points(read_points(module)),
        "chosen": _chosen(module).index,
        **({} if pins is None else {"pins": pins}),
        **_dims(module),
    }


def _dims(module: ir.Module) -> dict[str, dict[str, DimEntry]]:
    attributes, found = module.operation.attributes, dict[str, DimEntry]()
    texts = {**RANGES.get(attributes, {}), **NAMED_SIZES.get(attributes, {})}
    for name, sizes in parse_ranges([f"{name}={text}" for name, text in texts.items()]).items():
        own = range(sizes, sizes + 1) if isinstance(sizes, int) else sizes
        found[name] = {"first": own[0], "last": own[-1], "step": own.step}
    return {"dims": found} if found else {}


def predicted(
    module: ir.Module, model: Path, memory: RankMemory, parts: StaticParts | None = None
) -> dict[str, Any]:
    """Return the cost of the chosen point, the memory of the emitted graphs, and the expected error
    for the ``model``.

    The frontier does not include the temporaries of an op that becomes several ops on a rank, nor
    the working memory of kernels. With stages, its points have all layers on one stage.
    """
    point, attributes = _chosen(module), module.operation.attributes
    # Views take no memory here, as in the frontier's prediction of a process.
    excess = memory.static_bytes + memory.working_bytes - point.memory_bytes
    times = PIPELINE.get(attributes)
    if times is None:
        excess = max(excess, 0)
    trains = TRAINING.on(attributes)
    error = load_device(DEVICE.of(attributes)).plan_error(model, training=trains)
    return {
        **{name: getattr(point, name) for name in FIELDS},
        **({} if times is None else times),
        "memory_bytes": memory.static_bytes + memory.transient_bytes,
        "process_bytes": point.process_bytes + excess,
        "static_bytes": memory.static_bytes,
        "transient_bytes": memory.transient_bytes,
        **({} if parts is None else {"static_parts": vars(parts)}),
        "expected_error": None if error is None else asdict(error),
    }


def stages_of(module: ir.Module) -> int:
    """Return the number of stages of a program, 1 without stages."""
    return 1 + max(PLACES.get(module.operation.attributes, [0]))


def meshes_of(module: ir.Module) -> int:
    """Return the number of stages or of replicas of a program; each has a mesh of ranks."""
    return len(REPLICAS.get(module.operation.attributes, [])) or stages_of(module)


def _chosen(module: ir.Module) -> WrittenPoint:
    for point in read_points(module):
        if point.chosen:
            return point
    raise UserError("the module has no chosen topt.point, expected check-strategies to be run")
