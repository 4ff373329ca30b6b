"""Types inferred by ONNX Runtime, including those of its own operators."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import onnx

from tensoropt.compiler.protos.subgraphs import subgraphs
from tensoropt.compiler.protos.versions import MAX_IR_VERSION
from tensoropt.compiler.shapes.stand_in import replace_bfloat16
from tensoropt.compiler.support import native
from tensoropt.dialects.elements import element_of

__all__ = ["loads", "refusal", "runtime_types"]

Types = dict[str, onnx.TypeProto]


class _Output(NamedTuple):
    """An output of a session: its type (`tensor(float)`), and sizes or names of dimensions."""

    name: str
    type: str
    shape: list[int | str | None]


def runtime_types(proto: onnx.ModelProto) -> Types:
    """Return ONNX Runtime's types of all values, or none if it cannot load the model.

    The values become outputs of a session that never runs.
    """
    exposed = onnx.ModelProto()
    exposed.CopyFrom(proto)
    _replace_normalisations(exposed.graph)
    del exposed.graph.output[:]
    names = [name for node in exposed.graph.node for name in node.output if name]
    _squeeze_bounds(exposed.graph)
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    outputs = _outputs(exposed) or ()
    types = {o.name: kind for o in outputs if (kind := _runtime_type(o)) is not None}
    _clear_lengths(proto.graph, types)
    return types


def _replace_normalisations(graph: onnx.GraphProto) -> None:
    """Replace SimplifiedLayerNormalization by LayerNormalization if it returns its statistics.

    Both have the same result types, but ONNX Runtime only infers those of LayerNormalization
    correctly. For the other, it assumes that all reduced dimensions except one are as long as in
    the operand.
    """
    for node in graph.node:
        if node.op_type == "SimplifiedLayerNormalization" and len(node.output) > 1:
            node.op_type = "LayerNormalization"
            node.output.insert(1, "")


def _squeeze_bounds(graph: onnx.GraphProto) -> None:
    """Make the bounds of each Range scalars.

    ONNX Runtime runs a Range with bounds of one dimension of size 1, as exporters write it, but
    refuses it if a bound is a constant, which fixed sizes make of it.
    """
    nodes = []
    for node in graph.node:
        if node.op_type == "Range" and not node.domain:
            bounds = [f"{node.output[0]}/bound{number}" for number in range(len(node.input))]
            pairs = zip(node.input, bounds, strict=True)
            nodes += [onnx.helper.make_node("Squeeze", [bound], [to]) for bound, to in pairs]
            node.input[:] = bounds
        nodes.append(node)
    _add_nodes(graph, nodes)


def _add_nodes(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Make ``nodes`` those of a graph, if they are more."""
    if len(nodes) > len(graph.node):
        del graph.node[:]
        graph.node.extend(nodes)


def _clear_lengths(graph: onnx.GraphProto, types: Types) -> None:
    """Clear the lengths of GroupQueryAttention's caches if its operand 6 is not a constant.

    ONNX Runtime would assume that they are as long as the caches that the operator reads.
    """
    constant = {t.name for t in graph.initializer}
    constant |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    for node in graph.node:
        if node.op_type == "GroupQueryAttention" and not constant.issuperset(node.input[6:7]):
            for name in set(node.output[1:3]) & types.keys():
                for dim in types[name].tensor_type.shape.dim[2:3]:
                    dim.Clear()


def loads(proto: onnx.ModelProto) -> bool:
    """Return whether ONNX Runtime loads a graph without weights."""
    return _outputs(proto) is not None


def refusal(proto: onnx.ModelProto) -> str | None:
    """Return ONNX Runtime's error from loading and optimising a graph without weights.

    None if it succeeds, or if the attempt takes too much time or memory.
    """
    try:
        _session_outputs(proto, optimised=True)
    except native.NativeError as error:
        return str(error)
    except native.NativeFailureError:
        pass
    return None


def _outputs(proto: onnx.ModelProto) -> list[_Output] | None:
    """Return the outputs of ONNX Runtime's session, or ``None`` if it refuses the model."""
    try:
        return _session_outputs(proto)
    except (native.NativeError, native.NativeFailureError):  # invalid model, or no kernel
        return None


def _session_outputs(proto: onnx.ModelProto, *, optimised: bool = False) -> list[_Output]:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    copy.ir_version = min(copy.ir_version, MAX_IR_VERSION)
    stand_in = replace_bfloat16(copy)
    for graph, _ in list(subgraphs(copy.graph)):
        _fill_constants(graph)
    seconds = native.seconds_for(len(copy.graph.node))
    found = native.call(_load, copy.SerializeToString(), optimised, seconds=seconds)
    outputs = [_Output(*output) for output in found]
    if stand_in is None:
        return outputs
    replaced = {f"tensor({_RUNTIME_NAMES.get(stand_in, stand_in.lower())})": "tensor(bfloat16)"}
    return [output._replace(type=replaced.get(output.type, output.type)) for output in outputs]


def _fill_constants(graph: onnx.GraphProto) -> None:
    """Replace tensors without bytes, which ONNX Runtime refuses, by zeros computed at load time."""
    nodes = []
    for tensor in [t for t in graph.initializer if _is_external(t)]:
        nodes += _zero_nodes(tensor, tensor.name)
        graph.initializer.remove(tensor)
    for node in graph.node:
        tensors = [a.t for a in node.attribute if node.op_type == "Constant" and _is_external(a.t)]
        nodes += _zero_nodes(tensors[0], node.output[0]) if tensors else [node]
    _add_nodes(graph, nodes)


def _is_external(tensor: onnx.TensorProto) -> bool:
    is_known = element_of(tensor.data_type) is not None
    return is_known and tensor.data_location == onnx.TensorProto.EXTERNAL


def _zero_nodes(tensor: onnx.TensorProto, name: str) -> list[onnx.NodeProto]:
    """Return nodes that compute zeros of the type and shape of ``tensor``."""
    sizes = onnx.helper.make_tensor("", onnx.TensorProto.INT64, [len(tensor.dims)], tensor.dims)
    element = element_of(tensor.data_type)
    assert element is not None
    item = bytes(element.dtype.itemsize)
    zero = onnx.TensorProto(data_type=tensor.data_type, dims=[1], raw_data=item)
    return [
        onnx.helper.make_node("Constant", [], [f"{name}/sizes"], value=sizes),
        onnx.helper.make_node("ConstantOfShape", [f"{name}/sizes"], [name], value=zero),
    ]


def _load(model: bytes, optimised: bool) -> list[tuple[str, str, list[int | str | None]]]:
    """Return name, type and shape of the outputs of a model; runs in the child."""
    outputs = native.session(model, optimised=optimised).get_outputs()
    return [(output.name, output.type, list(output.shape)) for output in outputs]


_RUNTIME_ELEMENTS = {"float": "FLOAT", "double": "DOUBLE", "bool": "BOOL", "string": "STRING"}
_RUNTIME_NAMES = {name: own for own, name in _RUNTIME_ELEMENTS.items()}


def _runtime_type(output: _Output) -> onnx.TypeProto | None:
    match = re.fullmatch(r"tensor\((\w+)\)", output.type)
    if match is None:
        return None
    name = _RUNTIME_ELEMENTS.get(match[1], match[1].upper())
    shape = output.shape or None  # [] may be an unknown rank
    return onnx.helper.make_tensor_type_proto(onnx.TensorProto.DataType.Value(name), shape)
