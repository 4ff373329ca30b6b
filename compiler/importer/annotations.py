"""Multi-device annotations of a model, read as layouts of its nodes on one mesh."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from tensoropt.compiler.importer.model_file import normalise, read_proto
from tensoropt.compiler.layout.mesh import factorisations
from tensoropt.compiler.protos.annotation_checks import (
    Shape,
    annotated_nodes,
    annotation_mistakes,
    known_shapes,
)
from tensoropt.compiler.protos.sharding_specs import block_count, layout_of, shard_counts
from tensoropt.compiler.protos.signatures import Signature, signature
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["AnnotatedNode", "Annotations", "check_annotations", "read_annotations"]

_MOST_DEVICES = 64
_MESH = re.compile(r"\d{1,2}(x\d{1,2}){0,5}")

Texts = tuple[str, ...]
"""A placement for each mesh axis."""


@dataclass(frozen=True)
class AnnotatedNode:
    """The annotations of one node: a layout per operand and result, or ``None``.

    ``signature`` is the result of :func:`signature` for the node.
    """

    name: str
    signature: Signature
    operands: tuple[Texts | None, ...]
    results: tuple[Texts | None, ...]


@dataclass(frozen=True)
class Annotations:
    """The mesh that the annotations of a model imply, and its annotated nodes."""

    mesh: Mesh
    nodes: tuple[AnnotatedNode, ...]


def check_annotations(path: Path) -> tuple[list[str], int]:
    """Return a line for each mistake in a model's annotations, and the number of annotated nodes.

    Raises UserError if the file is not a model.
    """
    proto = read_proto(path)
    return list(annotation_mistakes(proto)), len(annotated_nodes(proto))


def read_annotations(path: Path) -> Annotations:
    """Read the annotations of the model file ``path``.

    Raises UserError if there are none, if they are invalid, or if no plan can express them.
    """
    proto = read_proto(path)
    mistake = next(annotation_mistakes(proto), None)
    if mistake is not None:
        raise UserError(f"{path}: {mistake}")
    if len(proto.configuration) != 1:
        names = ", ".join(f"'{each.name}'" for each in proto.configuration) or "none"
        raise UserError(f"{path}: expected annotations of one configuration, got: {names}")
    normalise(proto.graph)
    try:
        return _read(proto)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _read(proto: onnx.ModelProto) -> Annotations:
    own, shapes = proto.configuration[0], known_shapes(proto)
    if own.num_devices > _MOST_DEVICES:
        raise UserError(f"expected at most {_MOST_DEVICES} devices, got: {own.num_devices}")
    nodes = [node for node in proto.graph.node if node.device_configurations]
    if len(nodes) < len(annotated_nodes(proto)):
        raise UserError("expected annotations of the main graph only, got: of a body or function")
    _check_stages(nodes)
    specs = [_check_spec(node, spec, shapes) for node in nodes for spec in _specs(node)]
    mesh = _mesh(own, specs, shapes)
    return Annotations(mesh, tuple(_node(node, shapes, mesh) for node in nodes if _specs(node)))


def _specs(node: onnx.NodeProto) -> list[onnx.ShardingSpecProto]:
    return list(node.device_configurations[0].sharding_spec)


def _check_stages(nodes: Iterable[onnx.NodeProto]) -> None:
    """Raise UserError for a pipeline: all ranks of a plan run all nodes."""
    found: dict[int, str] = {}
    for node in nodes:
        configuration = node.device_configurations[0]
        if configuration.HasField("pipeline_stage"):
            found.setdefault(configuration.pipeline_stage, node.name)
    if len(found) > 1:
        stages = ", ".join(map(str, sorted(found)))
        raise UserError(
            f"expected no pipeline, as every rank runs every node, got: stages {stages}"
        )


def _check_spec(
    node: onnx.NodeProto, spec: onnx.ShardingSpecProto, shapes: Mapping[str, Shape]
) -> tuple[str, onnx.ShardingSpecProto]:
    """Return a spec and its place; raise UserError if it cannot be a layout."""
    where = f"node '{node.name}': tensor '{spec.tensor_name}'"
    if spec.tensor_name not in shapes and any(dim.axis < 0 for dim in spec.sharded_dim):
        raise UserError(f"{where}: expected an axis from 0, as the rank is unknown")
    for dim in spec.sharded_dim:
        split = [simple for simple in dim.simple_sharding if simple.num_shards > 1]
        first = dim.simple_sharding[0].num_shards > 1 or block_count(dim) > 1
        if len(split) > 1 or (split and not first):
            raise UserError(f"{where}: axis {dim.axis}: expected shards of neighbouring elements")
    shape = shapes.get(spec.tensor_name)
    rank = _rank(spec, shapes)
    blocks = {dim.axis % rank: block_count(dim) for dim in spec.sharded_dim}
    for axis, shards in shard_counts(spec, rank).items():
        size, count = None if shape is None else shape[axis], shards * blocks[axis]
        if size is not None and size % count:
            raise UserError(f"{where}: expected dimension {axis} to divide by {count}, got: {size}")
    return where, spec


def _rank(spec: onnx.ShardingSpecProto, shapes: Mapping[str, Shape]) -> int:
    """Return the rank of a tensor, or if it is unknown the lowest rank with all its axes."""
    known = shapes.get(spec.tensor_name)
    most = max((dim.axis for dim in spec.sharded_dim), default=0)
    return max(most + 1, 1) if known is None else max(len(known), 1)


def _mesh(
    own: onnx.DeviceConfigurationProto,
    specs: list[tuple[str, onnx.ShardingSpecProto]],
    shapes: Mapping[str, Shape],
) -> Mesh:
    """Return the mesh with the fewest axes on which every spec is a layout.

    A mesh that the configuration is named after comes first.
    """
    meshes = sorted(factorisations(own.num_devices), key=lambda mesh: len(mesh.shape))
    if _MESH.fullmatch(own.name):
        shape = tuple(map(int, own.name.split("x")))
        if math.prod(shape) == own.num_devices:
            meshes.insert(0, Mesh(shape))
    # Nodes that read or compute the same tensor repeat its spec.
    distinct = {spec.SerializeToString(): (where, spec) for where, spec in specs}
    failed = "no tensor"
    for mesh in meshes:
        for where, spec in distinct.values():
            if layout_of(spec, _rank(spec, shapes), mesh) is None:
                failed = where
                break
        else:
            return mesh
    raise UserError(
        f"{failed}: expected devices in the order of a mesh of all {own.num_devices}, "
        "the same for all tensors"
    )


def _node(node: onnx.NodeProto, shapes: Mapping[str, Shape], mesh: Mesh) -> AnnotatedNode:
    found: dict[str, Texts] = {}
    for spec in _specs(node):
        layout = layout_of(spec, _rank(spec, shapes), mesh)
        assert layout is not None, "every spec is a layout on the chosen mesh"
        found[spec.tensor_name] = tuple(layout.texts)
    operands, results = (tuple(map(found.get, side)) for side in (node.input, node.output))
    return AnnotatedNode(node.name, signature(node), operands, results)
