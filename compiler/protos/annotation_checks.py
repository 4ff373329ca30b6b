"""What the standard says of multi-device annotations, and its checker does not look at."""

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
"""Of tensors whose rank is known; ``None`` for a size that is not."""


def annotated_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the nodes of the model with annotations, those of bodies and functions included."""
    return [node for node, _ in _nodes(model, {}) if node.device_configurations]


def annotation_mistakes(model: onnx.ModelProto) -> Iterator[str]:
    """Yield a line for each mistake in the annotations of ``model``; nothing if all are valid."""
    used = bool(model.configuration) or bool(annotated_nodes(model))
    if used and model.ir_version < IR_VERSION:
        yield f"expected IR version {IR_VERSION} or later with annotations, got: {model.ir_version}"
    yield from _of_configurations(model)
    devices = {one.name: one.num_devices for one in model.configuration}
    for node, shapes in _nodes(model, known_shapes(model) if used else {}):
        for line in _of_node(node, devices, shapes):
            yield f"node '{node.name or node.op_type}': {line}"


def _of_configurations(model: onnx.ModelProto) -> Iterator[str]:
    yield from _doubles("configuration", (one.name for one in model.configuration))
    for one in model.configuration:
        where = f"configuration '{one.name}'"
        if not one.name:
            yield "a configuration has no name"
        if one.num_devices < 1:
            yield f"{where}: expected at least 1 device, got: {one.num_devices}"
        if one.device and len(one.device) != one.num_devices:
            yield f"{where}: expected {one.num_devices} names of devices, got: {len(one.device)}"


def _doubles(what: str, names: Iterable[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{what} '{name}' is there {count} times, expected once"


def _of_node(node: onnx.NodeProto, devices: Mapping[str, int], shapes: Shapes) -> Iterator[str]:
    every = node.device_configurations
    yield from _doubles("configuration", (one.configuration_id for one in every))
    for one in every:
        if one.configuration_id not in devices:
            known = ", ".join(devices) or "none"
            yield f"expected a configuration of the model, {known}, got: '{one.configuration_id}'"
            continue
        if one.HasField("pipeline_stage") and one.pipeline_stage < 0:
            yield f"expected a pipeline stage from 0, got: {one.pipeline_stage}"
        yield from _doubles("tensor", (spec.tensor_name for spec in one.sharding_spec))
        for spec in one.sharding_spec:
            if not spec.tensor_name or spec.tensor_name not in (*node.input, *node.output):
                yield f"expected a tensor that it reads or makes, got: '{spec.tensor_name}'"
                continue
            shape = shapes.get(spec.tensor_name)
            for line in _of_spec(spec, devices[one.configuration_id], shape):
                yield f"tensor '{spec.tensor_name}': {line}"


def _of_spec(spec: onnx.ShardingSpecProto, devices: int, shape: Shape | None) -> Iterator[str]:
    yield from _of_dims(spec, shape)
    counts = [simple.num_shards for one in spec.sharded_dim for simple in one.simple_sharding]
    shards = math.prod(counts)
    if min(counts, default=1) >= 1:
        yield from _of_devices(spec, devices, shards)


def _of_dims(spec: onnx.ShardingSpecProto, shape: Shape | None) -> Iterator[str]:
    rank = None if shape is None else len(shape)
    axes = [one.axis % rank if rank else one.axis for one in spec.sharded_dim]
    yield from _doubles("axis", map(str, axes))
    for one in spec.sharded_dim:
        if rank is not None and not -rank <= one.axis < rank:
            yield f"expected an axis from {-rank} to {rank - 1}, got: {one.axis}"
            continue
        if not one.simple_sharding:
            yield f"axis {one.axis}: expected at least one simple_sharding"
        for simple in one.simple_sharding:
            if simple.num_shards < 1:
                yield f"axis {one.axis}: expected at least 1 shard, got: {simple.num_shards}"
        sizes = [s.dim_value for s in one.simple_sharding if s.HasField("dim_value")]
        known = None if shape is None else shape[one.axis]
        whole = len(sizes) == len(one.simple_sharding) and known is not None
        if whole and sizes and math.prod(sizes) != known:
            yield f"axis {one.axis}: expected size {known}, got: {math.prod(sizes)}"


def _of_devices(spec: onnx.ShardingSpecProto, devices: int, shards: int) -> Iterator[str]:
    keys = [entry.key for entry in spec.index_to_device_group_map]
    yield from _doubles("device group", map(str, keys))
    groups = {entry.key: tuple(entry.value) for entry in spec.index_to_device_group_map}
    for key in sorted(set(groups) - set(spec.device)):
        yield f"device group {key} is not among its devices"
    named = [n for device in spec.device for n in groups.get(device, (device,))]
    for number in named:
        if not 0 <= number < devices:
            yield f"expected a device from 0 to {devices - 1}, got: {number}"
    yield from _doubles("device", map(str, named))
    if spec.device and len(spec.device) not in (shards, devices):
        yield f"expected a device or a group for each of {shards} shards, got: {len(spec.device)}"
    if any(not group for group in groups.values()):
        yield "expected a device in every group, got: none"


def _nodes(model: onnx.ModelProto, shapes: Shapes) -> Iterator[tuple[onnx.NodeProto, Shapes]]:
    """Yield every node, and the shapes of what it can see; ``shapes`` are those of the graph."""
    for node in model.graph.node:
        yield from _with_bodies(node, shapes)
    for function in model.functions:
        for node in function.node:
            yield from _with_bodies(node, {})


def _with_bodies(node: onnx.NodeProto, shapes: Shapes) -> Iterator[tuple[onnx.NodeProto, Shapes]]:
    yield node, shapes
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _with_bodies(inner, {**shapes, **_of_graph(graph)})


def known_shapes(model: onnx.ModelProto) -> dict[str, Shape]:
    """Return the shapes of the tensors of the graph whose rank is declared or follows."""
    seconds = native.seconds_for(len(model.graph.node))
    try:
        inferred = native.call(_inferred, model.SerializeToString(), seconds=seconds)
    except (native.NativeError, native.NativeFailureError):
        return _of_graph(model.graph)  # what is wrong there is not about annotations
    return _of_graph(onnx.ModelProto.FromString(inferred).graph)


def _inferred(model: bytes) -> bytes:
    """Return the model with inferred shapes; runs in the child."""
    inferred = onnx.shape_inference.infer_shapes(onnx.ModelProto.FromString(model))
    return bytes(inferred.SerializeToString())


def _of_graph(graph: onnx.GraphProto) -> dict[str, Shape]:
    found: dict[str, Shape] = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            found[value.name] = tuple(_size(dim) for dim in dims)
    return found


def _size(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    return dim.dim_value if dim.HasField("dim_value") else None
