"""The type of every value: ONNX's shape inference, and ONNX Runtime's for its own operators.

Where the kernels of ONNX Runtime make other shapes than ONNX says, theirs count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import onnx

from tensoropt.compiler.protos.subgraphs import subgraphs
from tensoropt.compiler.shapes import onnx_inference
from tensoropt.compiler.shapes.classical_types import DOMAIN as CLASSICAL
from tensoropt.compiler.shapes.classical_types import classical_types
from tensoropt.compiler.shapes.corrections import Corrections, corrections, masked, unmask
from tensoropt.compiler.shapes.given_types import given_types, has_given_rule
from tensoropt.compiler.shapes.runtime_types import loads, runtime_types
from tensoropt.compiler.shapes.symbols import open_sizes, substitute
from tensoropt.compiler.support import native
from tensoropt.compiler.support.errors import UserError

__all__ = ["Types", "infer_types", "name_outputs", "value_types"]

Types = dict[str, onnx.TypeProto]

_STANDARD = ("", "ai.onnx")
_ROUNDS = 10  # of a size that follows from one before it; models need two or three

_WHERE = re.compile(r"\(op_type:(?P<op>[^,)]*)(?:, node name: (?P<node>.*?))?\): ?")
_TAG = re.compile(r"\[[A-Za-z]+Error\] ?")


def infer_types(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``proto`` with a type for every value, declared shapes only where none is inferred.

    Sizes that the file declares for outputs and inner values are not trusted where inference knows
    them: a file made for another batch size often keeps stale ones. Raises :class:`UserError`,
    which does not name the file.
    """
    declared = {graph_id: types for graph_id, types in _declared(proto)}
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    _drop_declared(bare)
    _weights_as_inputs(bare)
    inferred = _with_classical(_infer(bare), _shaped(declared[()]))
    if not _complete(inferred):
        known = {**_shaped(declared[()]), **_known(inferred.graph)}
        if _needs_runtime(inferred.graph, known, declared[()]):
            known = {**runtime_types(inferred), **known}
        known = {**declared[()], **known}
        _declare(inferred.graph, known)
        inferred = _infer(inferred)
        _fill(inferred, {**declared, (): known})
    return _closed(inferred)


def _with_classical(inferred: onnx.ModelProto, declared: Types) -> onnx.ModelProto:
    """Find types of `ai.onnx.ml`, and of operators that a person gave rules for, which inference
    leaves open, and infer again while there are more.

    A round for each time that others are between two of them.
    """
    for _ in range(_ROUNDS):
        graph = inferred.graph
        if not any(node.domain == CLASSICAL or has_given_rule(node) for node in graph.node):
            break
        known = _shaped(_all_types(graph))
        found = {**classical_types(graph, known), **given_types(graph, known, declared)}
        if not found:
            break
        _declare(graph, {**_known(graph), **found})
        inferred = _infer(inferred)
    return inferred


def name_outputs(graph: onnx.GraphProto, declared: Types) -> None:
    """Give the symbolic dimensions of outputs the names that the file has for them.

    For people to read: that two of these are equal is not known.
    """
    for output in graph.output:
        dims = output.type.tensor_type.shape.dim
        given = declared[output.name].tensor_type.shape.dim if output.name in declared else ()
        for dim, own in zip(dims, given, strict=False):
            if own.dim_param and not dim.HasField("dim_value"):
                dim.dim_param = own.dim_param


def _closed(inferred: onnx.ModelProto) -> onnx.ModelProto:
    """Find sizes that inference leaves open, and infer again with them while there are more."""
    for _ in range(_ROUNDS):
        sizes = open_sizes(inferred.graph, _all_types(inferred.graph))
        if not sizes:
            break
        substitute(inferred.graph, sizes)
        inferred = _infer(inferred)
    return inferred


def _all_types(graph: onnx.GraphProto) -> Types:
    """Return the type of each value of ``graph``, those of its initializers too."""
    stored = {
        t.name: onnx.helper.make_tensor_type_proto(t.data_type, t.dims) for t in graph.initializer
    }
    return {**stored, **value_types(graph)}


def value_types(graph: onnx.GraphProto) -> Types:
    """Return the type of each value that ``graph`` itself defines."""
    infos = (*graph.value_info, *graph.output, *graph.input)
    return {info.name: info.type for info in infos if info.type.WhichOneof("value")}


def _declared(proto: onnx.ModelProto) -> Iterator[tuple[tuple[tuple[int, str], ...], Types]]:
    for graph, scope in subgraphs(proto.graph):
        types = {}
        for name, value in value_types(graph).items():
            types[name] = onnx.TypeProto()
            types[name].CopyFrom(value)
        yield scope, types


def _needs_runtime(graph: onnx.GraphProto, known: Types, declared: Types) -> bool:
    """Say whether a value has no type, or no shape though an operator of ONNX Runtime makes it."""
    typed = known.keys() | declared.keys() | value_types(graph).keys()
    return any(
        name and name not in (known if node.domain not in _STANDARD else typed)
        for node in graph.node
        for name in node.output
    )


def _drop_declared(proto: onnx.ModelProto) -> None:
    """Remove inner types and the shapes of outputs; the element types of outputs stay.

    An output that is an input or an initializer as well keeps its shape: there inference would
    forget the one of the input.
    """
    for graph, _ in subgraphs(proto.graph):
        del graph.value_info[:]
        given = {v.name for v in graph.input} | {v.name for v in graph.initializer}
        for output in graph.output:
            if output.name not in given and output.type.HasField("tensor_type"):
                output.type.tensor_type.ClearField("shape")


def _weights_as_inputs(proto: onnx.ModelProto) -> None:
    """Turn initializers without bytes into inputs: inference would refuse to look inside them."""
    graph = proto.graph
    given = {value.name for value in graph.input}
    stored = [t for t in graph.initializer if t.data_location != onnx.TensorProto.EXTERNAL]
    for tensor in graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL and tensor.name not in given:
            info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            graph.input.append(info)
    if len(stored) < len(graph.initializer):
        del graph.initializer[:]
        graph.initializer.extend(stored)


def _infer(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Infer all types, as often as it takes until no shape is left that needs to be corrected.

    A shape that is wrong may be what stops inference at a node behind it.
    """
    wrong: Corrections = {}
    while True:
        inferred, refused = _attempt(masked(proto, wrong) if wrong else proto)
        unmask(inferred)
        found = corrections(inferred)
        if any(wrong.get(place) != types for place, types in found.items()):
            wrong.update(found)
        elif refused is not None:
            raise refused
        else:
            return inferred


def _attempt(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, UserError | None]:
    """Return what is inferred, and the error after which that is not all."""
    try:
        return _infer_once(proto), None
    except UserError as error:
        try:
            return onnx_inference.run(proto, strict=False, values=False), error
        except native.NativeError:
            raise error from None


def _infer_once(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Infer from shapes alone, and where that leaves sizes unknown from values too.

    Propagating values takes a hundred times as long: a third of a millisecond per node.
    """
    try:
        inferred = onnx_inference.run(proto, strict=True, values=False)
        return (
            inferred if _static(inferred) else onnx_inference.run(proto, strict=True, values=True)
        )
    except native.NativeError as error:
        return _without_values(proto, error)


def _without_values(proto: onnx.ModelProto, first: Exception) -> onnx.ModelProto:
    """Infer again after a failure, skipping what fails, if the model is right nevertheless.

    The propagation of values (not of shapes) fails where it takes a matrix for a vector, and the
    inference of operators that are functions where these refer to attributes.
    """
    try:
        onnx_inference.run(proto, strict=True, values=False)
    except native.NativeError:
        plain = masked(proto, {})
        unmask(plain)
        if not loads(plain):
            raise UserError(_explain(str(first))) from None
    try:
        return onnx_inference.run(proto, strict=False, values=True)
    except native.NativeError as error:
        raise UserError(_explain(str(error))) from None


def _explain(text: str) -> str:
    """Turn the first error of an InferenceError into `node 'name' (Op): what is wrong`."""
    where = _WHERE.search(text)
    what = _TAG.sub("", text[where.end() :] if where else text).strip().splitlines()[0].strip()
    what = what[:1].lower() + what[1:].rstrip(".")
    if where is None:
        return f"types cannot be inferred: {what}"
    return f"node '{where['node'] or ''}' ({where['op']}): types do not fit: {what}"


def _known(graph: onnx.GraphProto) -> Types:
    return _shaped(value_types(graph))


def _shaped(types: Types) -> Types:
    return {name: kind for name, kind in types.items() if _has_shape(kind)}


def _has_shape(held: onnx.TypeProto) -> bool:
    kind = held.WhichOneof("value")
    if kind != "tensor_type":
        return kind is not None
    return bool(held.tensor_type.elem_type) and held.tensor_type.HasField("shape")


def _complete(proto: onnx.ModelProto) -> bool:
    """Say whether every value of every graph has an element type and a rank."""
    for graph, _ in subgraphs(proto.graph):
        types = _known(graph)
        if any(name and name not in types for node in graph.node for name in node.output):
            return False
    return True


def _static(proto: onnx.ModelProto) -> bool:
    """Say whether every value of every graph is a tensor of known sizes."""
    for graph, _ in subgraphs(proto.graph):
        types = value_types(graph)
        names = {name for node in graph.node for name in node.output if name}
        if not all(name in types and _has_sizes(types[name]) for name in names):
            return False
    return True


def _has_sizes(kind: onnx.TypeProto) -> bool:
    dims = kind.tensor_type.shape.dim
    return (
        _has_shape(kind)
        and kind.HasField("tensor_type")
        and all(d.HasField("dim_value") for d in dims)
    )


def _declare(graph: onnx.GraphProto, types: Mapping[str, onnx.TypeProto]) -> None:
    """Write ``types`` into the graph as what is known of its inner values, and of its outputs
    where these have none: nodes may read them too."""
    ends = {value.name for value in (*graph.input, *graph.output)}
    copies = {name: kind.SerializeToString() for name, kind in types.items()}
    for output in graph.output:
        if output.name in copies and not _has_shape(output.type):
            output.type.ParseFromString(copies[output.name])
    del graph.value_info[:]
    for node in graph.node:
        for name in node.output:
            if name in copies and name not in ends:
                info = graph.value_info.add(name=name)
                info.type.ParseFromString(copies[name])


def _fill(proto: onnx.ModelProto, declared: Mapping[tuple[tuple[int, str], ...], Types]) -> None:
    """Take the declared type, or the runtime's, of each value that inference left without one."""
    for graph, scope in subgraphs(proto.graph):
        known = _known(graph)
        for info in (*graph.output, *graph.value_info):
            if info.name not in known and info.name in declared.get(scope, {}):
                info.type.CopyFrom(declared[scope][info.name])
        listed = {info.name for info in (*graph.output, *graph.value_info)}
        for node in graph.node:
            for name in node.output:
                if name and name not in listed and name in declared.get(scope, {}):
                    graph.value_info.add(name=name).type.CopyFrom(declared[scope][name])
