"""The type of every value as ONNX Runtime sees it, which knows its own operators."""

from __future__ import annotations

import re
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
    """An output of a session: its type as `tensor(float)`, and sizes or names of dimensions."""

    name: str
    type: str
    shape: list[int | str | None]


def runtime_types(proto: onnx.ModelProto) -> Types:
    """Ask ONNX Runtime for the types of all values.

    The values become outputs of a session that never runs. An empty answer if it cannot load.
    """
    asked = onnx.ModelProto()
    asked.CopyFrom(proto)
    _replace_normalisations(asked.graph)
    del asked.graph.output[:]
    names = [name for node in asked.graph.node for name in node.output if name]
    asked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    outputs = _outputs(asked) or ()
    types = {o.name: kind for o in outputs if (kind := _runtime_type(o)) is not None}
    _forget_lengths(proto.graph, types)
    return types


def _replace_normalisations(graph: onnx.GraphProto) -> None:
    """Put LayerNormalization where SimplifiedLayerNormalization gives its statistics.

    Their results have the same types, of which ONNX Runtime knows the first alone: along all but
    one of the dimensions that are reduced, it takes the statistics to be as long as the operand.
    """
    for node in graph.node:
        if node.op_type == "SimplifiedLayerNormalization" and len(node.output) > 1:
            node.op_type = "LayerNormalization"
            node.output.insert(1, "")


def _forget_lengths(graph: onnx.GraphProto, types: Types) -> None:
    """Forget how long the caches are that GroupQueryAttention gives, if its operand 6 is not known:
    ONNX Runtime then takes them to be as long as those before."""
    constant = {t.name for t in graph.initializer}
    constant |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    for node in graph.node:
        if node.op_type == "GroupQueryAttention" and not constant.issuperset(node.input[6:7]):
            for name in set(node.output[1:3]) & types.keys():
                for dim in types[name].tensor_type.shape.dim[2:3]:
                    dim.Clear()


def loads(proto: onnx.ModelProto) -> bool:
    """Say whether ONNX Runtime loads a graph without weights."""
    return _outputs(proto) is not None


def refusal(proto: onnx.ModelProto) -> str | None:
    """Return what ONNX Runtime says where it does not load and optimise a graph without weights.

    None where it does, and where the attempt itself took too much time or memory.
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
    except (native.NativeError, native.NativeFailureError):  # a mistake in it, or no kernel
        return None


def _session_outputs(proto: onnx.ModelProto, *, optimised: bool = False) -> list[_Output]:
    asked = onnx.ModelProto()
    asked.CopyFrom(proto)
    asked.ir_version = min(asked.ir_version, MAX_IR_VERSION)
    stand_in = replace_bfloat16(asked)
    for graph, _ in list(subgraphs(asked.graph)):
        _fill_constants(graph)
    seconds = native.seconds_for(len(asked.graph.node))
    found = native.call(_load, asked.SerializeToString(), optimised, seconds=seconds)
    outputs = [_Output(*output) for output in found]
    if stand_in is None:
        return outputs
    replaced = {f"tensor({_RUNTIME_NAMES.get(stand_in, stand_in.lower())})": "tensor(bfloat16)"}
    return [output._replace(type=replaced.get(output.type, output.type)) for output in outputs]


def _fill_constants(graph: onnx.GraphProto) -> None:
    """Let tensors without bytes, which ONNX Runtime refuses, be filled with zeros as it loads."""
    nodes = []
    for tensor in [t for t in graph.initializer if _is_elsewhere(t)]:
        nodes += _filled(tensor, tensor.name)
        graph.initializer.remove(tensor)
    for node in graph.node:
        tensors = [a.t for a in node.attribute if node.op_type == "Constant" and _is_elsewhere(a.t)]
        nodes += _filled(tensors[0], node.output[0]) if tensors else [node]
    if len(nodes) > len(graph.node):
        del graph.node[:]
        graph.node.extend(nodes)


def _is_elsewhere(tensor: onnx.TensorProto) -> bool:
    is_known = element_of(tensor.data_type) is not None
    return is_known and tensor.data_location == onnx.TensorProto.EXTERNAL


def _filled(tensor: onnx.TensorProto, name: str) -> list[onnx.NodeProto]:
    """Return the nodes that make zeros of the type and shape of ``tensor``."""
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
