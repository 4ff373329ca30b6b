"""Type inference for every value: by ONNX, and by ONNX Runtime for its own operators.

If the kernels of ONNX Runtime return other shapes than ONNX infers, the kernels take precedence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import onnx

from tensoropt.compiler.protos.subgraphs import subgraphs
from tensoropt.compiler.shapes import onnx_inference
from tensoropt.compiler.shapes.classical_types import classical_types
from tensoropt.compiler.shapes.corrections import Corrections, find_corrections, mask, unmask
from tensoropt.compiler.shapes.rule_types import has_rule, rule_types
from tensoropt.compiler.shapes.runtime_types import runtime_types
from tensoropt.compiler.shapes.symbols import open_sizes, substitute
from tensoropt.compiler.support import native
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.onnx import CLASSICAL

__all__ = ["Types", "infer_types", "name_outputs", "value_types"]

Types = dict[str, onnx.TypeProto]

_STANDARD = ("", "ai.onnx")
_ROUNDS = 10  # longest chain of sizes that depend on each other; models need two or three

_WHERE = re.compile(r"\(op_type:(?P<op>[^,)]*)(?:, node name: (?P<node>.*?))?\): ?")
_TAG = re.compile(r"\[[A-Za-z]+Error\] ?")


def infer_types(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``proto`` with a type for every value; declared shapes are used only as a fallback.

    Sizes that the file declares for outputs and inner values are ignored if inference determines
    them: a file exported for another batch size often has stale sizes. Raises :class:`UserError`,
    which does not name the file.
    """
    declared = {graph_id: types for graph_id, types in _declared_types(proto)}
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    _drop_declared(bare)
    _make_weights_inputs(bare)
    inferred = _infer_extensions(_infer(bare), _drop_shapeless(declared[()]))
    if not _is_complete(inferred):
        known = {**_drop_shapeless(declared[()]), **_shaped_types(inferred.graph)}
        if _needs_runtime(inferred.graph, known, declared[()]):
            known = {**runtime_types(inferred), **known}
        known = {**declared[()], **known}
        _declare(inferred.graph, known)
        inferred = _infer(inferred)
        _fill(inferred, {**declared, (): known})
    return _close_sizes(inferred)


def _infer_extensions(inferred: onnx.ModelProto, declared: Types) -> onnx.ModelProto:
    """Infer types of `ai.onnx.ml` and of operators with a user's rule until nothing changes.

    Each round also infers the standard operators between them.
    """
    for _ in range(_ROUNDS):
        graph = inferred.graph
        if not any(node.domain == CLASSICAL or has_rule(node) for node in graph.node):
            break
        known = _drop_shapeless(_all_types(graph))
        found = {**classical_types(graph, known), **rule_types(graph, known, declared)}
        if not found:
            break
        _declare(graph, {**_shaped_types(graph), **found})
        inferred = _infer(inferred)
    return inferred


def name_outputs(graph: onnx.GraphProto, declared: Types) -> None:
    """Name the symbolic dimensions of outputs as the file does.

    The names are for readers only: equal names do not imply equal sizes.
    """
    for output in graph.output:
        dims = output.type.tensor_type.shape.dim
        given = declared[output.name].tensor_type.shape.dim if output.name in declared else ()
        for dim, own in zip(dims, given, strict=False):
            if own.dim_param and not dim.HasField("dim_value"):
                dim.dim_param = own.dim_param


def _close_sizes(inferred: onnx.ModelProto) -> onnx.ModelProto:
    """Find sizes that inference leaves open, and infer again until nothing changes."""
    for _ in range(_ROUNDS):
        sizes = open_sizes(inferred.graph, _all_types(inferred.graph))
        if not sizes:
            break
        substitute(inferred.graph, sizes)
        inferred = _infer(inferred)
    return inferred


def _all_types(graph: onnx.GraphProto) -> Types:
    """Return the type of each value of ``graph``, including its initializers."""
    stored = {
        t.name: onnx.helper.make_tensor_type_proto(t.data_type, t.dims) for t in graph.initializer
    }
    return {**stored, **value_types(graph)}


def value_types(graph: onnx.GraphProto) -> Types:
    """Return the type of each value that ``graph`` itself defines."""
    infos = (*graph.value_info, *graph.output, *graph.input)
    return {info.name: info.type for info in infos if info.type.WhichOneof("value")}


def _declared_types(proto: onnx.ModelProto) -> Iterator[tuple[tuple[tuple[int, str], ...], Types]]:
    for graph, scope in subgraphs(proto.graph):
        types = {}
        for name, value in value_types(graph).items():
            types[name] = onnx.TypeProto()
            types[name].CopyFrom(value)
        yield scope, types


def _needs_runtime(graph: onnx.GraphProto, known: Types, declared: Types) -> bool:
    """Return whether a value has no type, or a result of a nonstandard operator has no shape."""
    typed = known.keys() | declared.keys() | value_types(graph).keys()
    return any(
        name and name not in (known if node.domain not in _STANDARD else typed)
        for node in graph.node
        for name in node.output
    )


def _drop_declared(proto: onnx.ModelProto) -> None:
    """Remove inner types and the shapes of outputs; output element types are retained.

    An output that is also an input or an initializer retains its shape: inference would otherwise
    drop the shape of the input.
    """
    for graph, _ in subgraphs(proto.graph):
        del graph.value_info[:]
        given = {v.name for v in graph.input} | {v.name for v in graph.initializer}
        for output in graph.output:
            if output.name not in given and output.type.HasField("tensor_type"):
                output.type.tensor_type.ClearField("shape")


def _make_weights_inputs(proto: onnx.ModelProto) -> None:
    """Turn initializers without bytes into inputs: inference refuses to read them."""
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
    """Infer all types, repeatedly until no shape needs a correction.

    A wrong shape may be the cause of an inference error at a later node.
    """
    wrong: Corrections = {}
    while True:
        masked, refused = mask(proto, wrong) if wrong else proto, None
        try:
            inferred = _infer_once(masked)
        except UserError as error:
            refused = error  # raised below, unless a wrong shape explains it
            try:
                inferred = onnx_inference.run(masked, strict=False, values=False)
            except native.NativeError:
                raise error from None
        unmask(inferred)
        found = find_corrections(inferred)
        if any(wrong.get(place) != types for place, types in found.items()):
            wrong.update(found)
        elif refused is not None:
            raise refused
        else:
            return inferred


def _infer_once(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Infer from shapes alone, and again with values if sizes remain unknown.

    Propagating values takes a hundred times as long: a third of a millisecond per node.
    """
    try:
        inferred = onnx_inference.run(proto, strict=True, values=False)
        return (
            inferred
            if _is_static(inferred)
            else onnx_inference.run(proto, strict=True, values=True)
        )
    except native.NativeError as error:
        return _infer_leniently(proto, error)


def _infer_leniently(proto: onnx.ModelProto, first: Exception) -> onnx.ModelProto:
    """Infer again after a failure, skipping failing nodes, if the model is nevertheless valid.

    The propagation of values (not of shapes) fails if it takes a matrix for a vector. The inference
    of function operators fails if their bodies refer to attributes.
    """
    try:
        onnx_inference.run(proto, strict=True, values=False)
    except native.NativeError:
        if not onnx_inference.is_valid(proto):
            raise UserError(_explain(str(first))) from None
    try:
        return onnx_inference.run(proto, strict=False, values=True)
    except native.NativeError as error:
        raise UserError(_explain(str(error))) from None


def _explain(text: str) -> str:
    """Turn the first error of an InferenceError into `node 'name' (Op): problem`."""
    where = _WHERE.search(text)
    what = _TAG.sub("", text[where.end() :] if where else text).strip().splitlines()[0].strip()
    what = what[:1].lower() + what[1:].rstrip(".")
    if where is None:
        return f"types cannot be inferred: {what}"
    return f"node '{where['node'] or ''}' ({where['op']}): types do not fit: {what}"


def _shaped_types(graph: onnx.GraphProto) -> Types:
    return _drop_shapeless(value_types(graph))


def _drop_shapeless(types: Types) -> Types:
    return {name: kind for name, kind in types.items() if _has_shape(kind)}


def _has_shape(proto: onnx.TypeProto) -> bool:
    kind = proto.WhichOneof("value")
    if kind != "tensor_type":
        return kind is not None
    return bool(proto.tensor_type.elem_type) and proto.tensor_type.HasField("shape")


def _is_complete(proto: onnx.ModelProto) -> bool:
    """Return whether every value of every graph has an element type and a rank."""
    for graph, _ in subgraphs(proto.graph):
        types = _shaped_types(graph)
        if any(name and name not in types for node in graph.node for name in node.output):
            return False
    return True


def _is_static(proto: onnx.ModelProto) -> bool:
    """Return whether every value of every graph is a tensor of known sizes."""
    for graph, _ in subgraphs(proto.graph):
        types = _shaped_types(graph)
        for name in (name for node in graph.node for name in node.output if name):
            if name not in types or not types[name].HasField("tensor_type"):
                return False
            if not all(dim.HasField("dim_value") for dim in types[name].tensor_type.shape.dim):
                return False
    return True


def _declare(graph: onnx.GraphProto, types: Mapping[str, onnx.TypeProto]) -> None:
    """Declare ``types`` for inner values of the graph, and for outputs that have no shape.

    Nodes may read outputs too.
    """
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
    """Fill in the declared type, or the runtime's, of each value without an inferred type."""
    for graph, scope in subgraphs(proto.graph):
        known = _shaped_types(graph)
        for info in (*graph.output, *graph.value_info):
            if info.name not in known and info.name in declared.get(scope, {}):
                info.type.CopyFrom(declared[scope][info.name])
        listed = {info.name for info in (*graph.output, *graph.value_info)}
        for node in graph.node:
            for name in node.output:
                if name and name not in listed and name in declared.get(scope, {}):
                    graph.value_info.add(name=name).type.CopyFrom(declared[scope][name])
