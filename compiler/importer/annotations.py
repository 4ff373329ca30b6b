"""Multi-device annotations of a model, read as layouts of its nodes on one mesh."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from tensoropt.compiler.importer.model_file import normalise, read_proto
from tensoropt.compiler.layout.mesh import Mesh, factorisations
from tensoropt.compiler.protos.annotation_checks import (
    Shape,
    annotated_nodes,
    annotation_mistakes,
    known_shapes,
)
from tensoropt.compiler.protos.sharding_specs import layout_of, shard_counts
from tensoropt.compiler.protos.signatures import Signature, signature
from tensoropt.compiler.support.errors import UserError

__all__ = ["AnnotatedNode", "Annotations", "check_annotations", "read_annotations"]

_MOST_DEVICES = 64
_MESH = re.compile(r"\d{1,2}(x\d{1,2}){0,5}")

Texts = tuple[str, ...]
"""One placement per mesh axis."""


@dataclass(frozen=True)
class AnnotatedNode:
    """What annotations say of one node: a layout per operand and result, ``None`` for nothing.

    ``signature`` is what the node does, as :func:`signature` has it.
    """

    name: str
    signature: Signature
    operands: tuple[Texts | None, ...]
    results: tuple[Texts | None, ...]


@dataclass(frozen=True)
class Annotations:
    """The mesh that the annotations of a model are about, and what they say of its nodes."""

    mesh: Mesh
    nodes: tuple[AnnotatedNode, ...]


def check_annotations(path: Path) -> tuple[list[str], int]:
    """Return a line for each mistake in the annotations of a model, and how many nodes have any.

    Raises UserError where it is no model.
    """
    proto = read_proto(path)
    return list(annotation_mistakes(proto)), len(annotated_nodes(proto))


def read_annotations(path: Path) -> Annotations:
    """Return what the annotations of the model file ``path`` say.

    Raises UserError where there are none, they are invalid, or say what no plan can.
    """
    proto = read_proto(path)
    mistake = next(annotation_mistakes(proto), None)
    if mistake is not None:
        raise UserError(f"{path}: {mistake}")
    if len(proto.configuration) != 1:
        names = ", ".join(f"'{one.name}'" for one in proto.configuration) or "none"
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
        raise UserError("annotates nodes of a body or function, expected those of the graph alone")
    _check_stages(nodes)
    specs = [_named(node, spec, shapes) for node in nodes for spec in _specs(node)]
    mesh = _mesh(own, specs, shapes)
    return Annotations(mesh, tuple(_node(node, shapes, mesh) for node in nodes if _specs(node)))


def _specs(node: onnx.NodeProto) -> list[onnx.ShardingSpecProto]:
    return list(node.device_configurations[0].sharding_spec)


def _check_stages(nodes: Iterable[onnx.NodeProto]) -> None:
    """Refuse a pipeline: all ranks of a plan run all nodes."""
    found: dict[int, str] = {}
    for node in nodes:
        one = node.device_configurations[0]
        if one.HasField("pipeline_stage"):
            found.setdefault(one.pipeline_stage, node.name)
    if len(found) > 1:
        stages = ", ".join(map(str, sorted(found)))
        raise UserError(
            f"expected no pipeline, as every rank runs every node, got: stages {stages}"
        )


def _named(
    node: onnx.NodeProto, spec: onnx.ShardingSpecProto, shapes: Mapping[str, Shape]
) -> tuple[str, onnx.ShardingSpecProto]:
    """Return a spec and where it is; refuse what no layout can be."""
    where = f"node '{node.name}': tensor '{spec.tensor_name}'"
    if spec.tensor_name not in shapes and any(one.axis < 0 for one in spec.sharded_dim):
        raise UserError(f"{where}: expected an axis from 0, as the rank is unknown")
    for one in spec.sharded_dim:
        split = [simple for simple in one.simple_sharding if simple.num_shards > 1]
        first = one.simple_sharding[0].num_shards > 1
        if len(split) > 1 or (split and not first):
            raise UserError(f"{where}: axis {one.axis}: expected shards of neighbouring elements")
    shape = shapes.get(spec.tensor_name)
    for dim, count in shard_counts(spec, _rank(spec, shapes)).items():
        size = None if shape is None else shape[dim]
        if size is not None and size % count:
            raise UserError(f"{where}: expected dimension {dim} to divide by {count}, got: {size}")
    return where, spec


def _rank(spec: onnx.ShardingSpecProto, shapes: Mapping[str, Shape]) -> int:
    """Return the rank of a tensor; where it is not known, one that its axes fit into."""
    known = shapes.get(spec.tensor_name)
    most = max((one.axis for one in spec.sharded_dim), default=0)
    return max(most + 1, 1) if known is None else max(len(known), 1)


def _mesh(
    own: onnx.DeviceConfigurationProto,
    specs: list[tuple[str, onnx.ShardingSpecProto]],
    shapes: Mapping[str, Shape],
) -> Mesh:
    """Return the first mesh on which every spec is a layout, of fewest axes.

    The one that the configuration is called by comes before the others.
    """
    distinct = {spec.SerializeToString(): (where, spec) for where, spec in specs}
    failed = "no tensor"
    for mesh in _meshes(own):
        odd = _odd(mesh, distinct.values(), shapes)
        if odd is None:
            return mesh
        failed = odd
    raise UserError(
        f"{failed}: expected devices in the order of a mesh of all {own.num_devices}, "
        "the same for all tensors"
    )


def _odd(
    mesh: Mesh,
    specs: Iterable[tuple[str, onnx.ShardingSpecProto]],
    shapes: Mapping[str, Shape],
) -> str | None:
    """Return the first spec that is no layout on ``mesh``."""
    for where, spec in specs:
        if layout_of(spec, _rank(spec, shapes), mesh) is None:
            return where
    return None


def _meshes(own: onnx.DeviceConfigurationProto) -> Iterator[Mesh]:
    if _MESH.fullmatch(own.name):
        shape = tuple(map(int, own.name.split("x")))
        if math.prod(shape) == own.num_devices:
            yield Mesh(shape)
    yield from sorted(factorisations(own.num_devices), key=lambda mesh: len(mesh.shape))


def _node(node: onnx.NodeProto, shapes: Mapping[str, Shape], mesh: Mesh) -> AnnotatedNode:
    found: dict[str, Texts] = {}
    for spec in _specs(node):
        layout = layout_of(spec, _rank(spec, shapes), mesh)
        assert layout is not None, "the mesh was chosen so"
        found[spec.tensor_name] = tuple(layout.texts)
    operands, results = (tuple(map(found.get, side)) for side in (node.input, node.output))
    return AnnotatedNode(node.name, signature(node), operands, results)
