"""Checks of multi-device annotations that ONNX's own checker does not do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import onnx
import onnx.shape_inference

from tensoropt.compiler.protos.sharding_specs import IR_VERSION
from tensoropt.compiler.support import native

__all__ = ["Shape", "annotated_nodes", "annotation_mistakes", "known_shapes"]

Shape = tuple[int | None, ...]

Shapes = Mapping[str, Shape]
"""Shapes of tensors with known rank; ``None`` for an unknown size."""


def annotated_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the nodes of the model with annotations, including those of bodies and functions."""
    return [node for node, _ in _nodes(model, {}) if node.device_configurations]


def annotation_mistakes(model: onnx.ModelProto) -> Iterator[str]:
    """Yield a line for each mistake in the annotations of ``model``; nothing if all are valid."""
    used = bool(model.configuration) or bool(annotated_nodes(model))
    if used and model.ir_version < IR_VERSION:
        yield f"expected IR version {IR_VERSION} or later with annotations, got: {model.ir_version}"
    yield from _check_configurations(model)
    devices = {each.name: each.num_devices for each in model.configuration}
    for node, shapes in _nodes(model, known_shapes(model) if used else {}):
        for line in _check_node(node, devices, shapes):
            yield f"node '{node.name or node.op_type}': {line}"


def _check_configurations(model: onnx.ModelProto) -> Iterator[str]:
    yield from _report_duplicates("configuration", (each.name for each in model.configuration))
    for each in model.configuration:
        where = f"configuration '{each.name}'"
        if not each.name:
            yield "a configuration has no name"
        if each.num_devices < 1:
            yield f"{where}: expected at least 1 device, got: {each.num_devices}"
        if each.device and len(each.device) != each.num_devices:
            yield f"{where}: expected {each.num_devices} device names, got: {len(each.device)}"


def _report_duplicates(what: str, names: Iterable[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{what} '{name}' appears {count} times, expected once"


def _check_node(node: onnx.NodeProto, devices: Mapping[str, int], shapes: Shapes) -> Iterator[str]:
    every = node.device_configurations
    yield from _report_duplicates("configuration", (each.configuration_id for each in every))
    for each in every:
        if each.configuration_id not in devices:
            known = ", ".join(devices) or "none"
            yield f"expected a configuration of the model, {known}, got: '{each.configuration_id}'"
            continue
        if each.HasField("pipeline_stage") and each.pipeline_stage < 0:
            yield f"expected a pipeline stage from 0, got: {each.pipeline_stage}"
        yield from _report_duplicates("tensor", (spec.tensor_name for spec in each.sharding_spec))
        for spec in each.sharding_spec:
            if not spec.tensor_name or spec.tensor_name not in (*node.input, *node.output):
                yield f"expected an operand or result of the node, got: '{spec.tensor_name}'"
                continue
            shape = shapes.get(spec.tensor_name)
            for line in _check_spec(spec, devices[each.configuration_id], shape):
                yield f"tensor '{spec.tensor_name}': {line}"


def _check_spec(spec: onnx.ShardingSpecProto, devices: int, shape: Shape | None) -> Iterator[str]:
    yield from _check_dims(spec, shape)
    counts = [simple.num_shards for dim in spec.sharded_dim for simple in dim.simple_sharding]
    shards = math.prod(counts)
    if min(counts, default=1) >= 1:
        yield from _check_devices(spec, devices, shards)


def _check_dims(spec: onnx.ShardingSpecProto, shape: Shape | None) -> Iterator[str]:
    rank = None if shape is None else len(shape)
    axes = [dim.axis % rank if rank else dim.axis for dim in spec.sharded_dim]
    yield from _report_duplicates("axis", map(str, axes))
    for dim in spec.sharded_dim:
        if rank is not None and not -rank <= dim.axis < rank:
            yield f"expected an axis from {-rank} to {rank - 1}, got: {dim.axis}"
            continue
        if not dim.simple_sharding:
            yield f"axis {dim.axis}: expected at least one simple_sharding"
        for simple in dim.simple_sharding:
            if simple.num_shards < 1:
                yield f"axis {dim.axis}: expected at least 1 shard, got: {simple.num_shards}"
        sizes = [s.dim_value for s in dim.simple_sharding if s.HasField("dim_value")]
        known = None if shape is None else shape[dim.axis]
        whole = len(sizes) == len(dim.simple_sharding) and known is not None
        if whole and sizes and math.prod(sizes) != known:
            yield f"axis {dim.axis}: expected size {known}, got: {math.prod(sizes)}"


def _check_devices(spec: onnx.ShardingSpecProto, devices: int, shards: int) -> Iterator[str]:
    keys = [entry.key for entry in spec.index_to_device_group_map]
    yield from _report_duplicates("device group", map(str, keys))
    groups = {entry.key: tuple(entry.value) for entry in spec.index_to_device_group_map}
    for key in sorted(set(groups) - set(spec.device)):
        yield f"device group {key} is not among its devices"
    named = [n for device in spec.device for n in groups.get(device, (device,))]
    for number in named:
        if not 0 <= number < devices:
            yield f"expected a device from 0 to {devices - 1}, got: {number}"
    yield from _report_duplicates("device", map(str, named))
    if spec.device and len(spec.device) not in (shards, devices):
        yield f"expected a device or a group for each of {shards} shards, got: {len(spec.device)}"
    if any(not group for group in groups.values()):
        yield "expected a device in every group, got: none"


def _nodes(model: onnx.ModelProto, shapes: Shapes) -> Iterator[tuple[onnx.NodeProto, Shapes]]:
    """Yield every node with the shapes that it can see; ``shapes`` are of the main graph."""
    for node in model.graph.node:
        yield from _nodes_inside(node, shapes)
    for function in model.functions:
        for node in function.node:
            yield from _nodes_inside(node, {})


def _nodes_inside(node: onnx.NodeProto, shapes: Shapes) -> Iterator[tuple[onnx.NodeProto, Shapes]]:
    yield node, shapes
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _nodes_inside(inner, {**shapes, **_declared_shapes(graph)})


def known_shapes(model: onnx.ModelProto) -> dict[str, Shape]:
    """Return the shapes of the tensors of the graph with a declared or inferred rank."""
    seconds = native.seconds_for(len(model.graph.node))
    try:
        inferred = native.call(_infer, model.SerializeToString(), seconds=seconds)
    except (native.NativeError, native.NativeFailureError):
        return _declared_shapes(model.graph)  # the error is unrelated to annotations
    return _declared_shapes(onnx.ModelProto.FromString(inferred).graph)


def _infer(model: bytes) -> bytes:
    """Return the model with inferred shapes; runs in the child."""
    inferred = onnx.shape_inference.infer_shapes(onnx.ModelProto.FromString(model))
    return bytes(inferred.SerializeToString())


def _declared_shapes(graph: onnx.GraphProto) -> dict[str, Shape]:
    found: dict[str, Shape] = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            sizes = (dim.dim_value if dim.HasField("dim_value") else None for dim in dims)
            found[value.name] = tuple(sizes)
    return found
