"""Reads a model file: the graph without its weights, functions inlined, names checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import onnx
from google.protobuf.message import DecodeError

from tensoropt.compiler.importer.declared import Declared, declared
from tensoropt.compiler.importer.dimensions import bind_dims, name_dims
from tensoropt.compiler.importer.fixed_sizes import check_sizes, has_bodies
from tensoropt.compiler.importer.for_training import converted, may_train
from tensoropt.compiler.importer.sparse import densify
from tensoropt.compiler.importer.stored import Folder, fetch
from tensoropt.compiler.importer.text_fields import undecoded_text
from tensoropt.compiler.importer.wire import MalformedError, model_without_weights
from tensoropt.compiler.protos.graph_checks import check_graph
from tensoropt.compiler.protos.literals import is_literal, settings
from tensoropt.compiler.protos.names import Namer
from tensoropt.compiler.protos.subgraphs import Scope, subgraphs
from tensoropt.compiler.protos.versions import MAX_OPSET
from tensoropt.compiler.support import native
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.plan.dims import Sizes

__all__ = ["Model", "Parameter", "load_model", "normalise", "read_proto"]

_DEFAULT_OPSET = 20  # of a model that uses none of its operators
_LFS_POINTER = b"version https://git-lfs"


class Parameter(NamedTuple):
    """A tensor of the model file that stays there: its name in the module and its TensorProto.

    ``fixed`` says that training leaves it unchanged by default, ``listed`` that the exporter names
    it as a parameter to train.
    """

    name: str
    tensor: onnx.TensorProto
    fixed: bool = False
    listed: bool = False


@dataclass
class Model:
    """A model without weights, its parameters by (scope, ONNX name), and what is said of them."""

    path: Path
    proto: onnx.ModelProto
    parameters: dict[tuple[Scope, str], Parameter] = field(default_factory=dict)
    declared: Declared = field(default_factory=Declared)

    @property
    def graph(self) -> onnx.GraphProto:
        return self.proto.graph

    @property
    def opsets(self) -> dict[str, int]:
        """The operator set version per domain; the standard domain is the empty string."""
        return {_domain(o.domain): o.version for o in self.proto.opset_import}


def load_model(
    path: Path, dims: Mapping[str, Sizes] | None = None, *, training: bool = False
) -> Model:
    """Return the model in ``path``; ``dims`` gives sizes to symbolic dimensions, or ranges of them.

    The order of its nodes is topological and every name has one definition. With ``training`` its
    standard operators are of ``TRAINING_OPSET`` or later, into which older ones are converted.
    Raises :class:`UserError` for a file that is not such a model.
    """
    proto = read_proto(path)
    _check_versions(path, proto)
    if proto.functions:
        proto = _inline(path, proto)
    for graph, _ in subgraphs(proto.graph):
        normalise(graph)
        densify(path, graph)
    name_dims(proto)
    fixed = {name: size for name, size in (dims or {}).items() if isinstance(size, int)}
    before = _copied(proto) if fixed and has_bodies(proto) else None
    bind_dims(path, proto, dims or {})
    check_graph(path, proto)
    _fetch_literals(path, proto)
    if before is not None:
        _fetch_literals(path, before)
        check_sizes(path, before, fixed)
    for graph, _ in subgraphs(proto.graph):
        _drop_empty_axes(graph)
    known = declared(proto) if training else Declared()
    if training:
        proto = converted(path, proto)
        for graph, _ in subgraphs(proto.graph):
            normalise(graph)
        check_graph(path, proto)
    model = Model(path, proto, declared=known)
    _prune_opsets(model)
    model.parameters = _find_parameters(model, training)
    return model


def read_proto(path: Path) -> onnx.ModelProto:
    """Return what the file ``path`` holds, weights left out; raises UserError for no model."""
    if path.is_dir():
        raise UserError(f"{path}: is a directory, expected an ONNX model")
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        proto = onnx.ModelProto.FromString(model_without_weights(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except (MalformedError, DecodeError) as error:
        what = _what_is(path, error)
        raise UserError(f"{path}: not an ONNX model, expected a ModelProto, got: {what}") from None
    if not proto.HasField("graph") or not proto.ir_version:
        raise UserError(f"{path}: not an ONNX model, expected a ModelProto with a graph")
    if (found := undecoded_text(proto)) is not None:
        field, text = found
        raise UserError(f"{path}: field '{field}' is damaged, expected UTF-8 text, got: {text!r}")
    return proto


def _copied(proto: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def _fetch_literals(path: Path, proto: onnx.ModelProto) -> None:
    folder = Folder(path)
    for graph, _ in subgraphs(proto.graph):
        own = settings(graph)
        for tensor in _tensors(graph):
            if is_literal(tensor, setting=tensor.name in own):
                fetch(folder, tensor)


def _what_is(path: Path, error: Exception) -> str:
    with path.open("rb") as file:
        if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
            return "a Git LFS pointer (git lfs pull fetches the model)"
    return str(error) if isinstance(error, MalformedError) else "other bytes"


def _check_versions(path: Path, proto: onnx.ModelProto) -> None:
    newest = onnx.IR_VERSION  # written back as MAX_IR_VERSION at most
    if proto.ir_version > newest:
        raise UserError(
            f"{path}: IR version is too new, expected at most {newest}, got: {proto.ir_version}"
        )
    if not proto.opset_import:
        raise UserError(f"{path}: no opset_import, expected a version of each domain that is used")
    for entry in proto.opset_import:
        limit = MAX_OPSET.get(_domain(entry.domain))
        if limit is not None and entry.version > limit:
            raise UserError(
                f"{path}: opset of domain '{entry.domain or 'ai.onnx'}' is too new for "
                f"onnxruntime, expected at most {limit}, got: {entry.version}"
            )


def _inline(path: Path, proto: onnx.ModelProto) -> onnx.ModelProto:
    seconds = native.seconds_for(len(proto.graph.node))
    try:
        model_bytes = native.call(_inlined, proto.SerializeToString(), seconds=seconds)
    except (native.NativeError, native.NativeFailureError) as error:
        text = str(error).splitlines()[0]
        raise UserError(f"{path}: functions cannot be inlined: {text}") from None
    inlined = onnx.ModelProto.FromString(model_bytes)
    del inlined.functions[:]
    return inlined


def _inlined(model: bytes) -> bytes:
    """Return the model with its functions inlined; runs in the child."""
    import onnx.inliner

    proto = onnx.ModelProto.FromString(model)
    inlined = onnx.inliner.inline_local_functions(proto, convert_version=True)
    return bytes(inlined.SerializeToString())


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def normalise(graph: onnx.GraphProto) -> None:
    """Give every node a name of its own and the standard domain its short form."""
    for index, node in enumerate(graph.node):
        if node.domain == "ai.onnx":
            node.domain = ""
        if not node.name:
            node.name = f"{node.op_type}_{index}"


def _drop_empty_axes(graph: onnx.GraphProto) -> None:
    """Leave out the axes of a Squeeze that name none.

    To ONNX Runtime that is the same: all dimensions of 1 go. ONNX's shape inference keeps them.
    """
    empty = {tensor.name for tensor in _tensors(graph) if 0 in tensor.dims}
    for node in graph.node:
        if node.op_type == "Squeeze" and not node.domain and empty.intersection(node.input[1:]):
            del node.input[1:]


def _prune_opsets(model: Model) -> None:
    """Keep one import per domain that a node uses (inlined functions leave theirs behind).

    The standard domain stays, for the nodes that the compiler adds.
    """
    used = {node.domain for graph, _ in subgraphs(model.graph) for node in graph.node}
    versions = {domain: version for domain, version in model.opsets.items() if domain in used}
    versions.setdefault("", model.opsets.get("", _DEFAULT_OPSET))
    del model.proto.opset_import[:]
    for domain, version in versions.items():
        model.proto.opset_import.add(domain=domain, version=version)


def _find_parameters(model: Model, training: bool) -> dict[tuple[Scope, str], Parameter]:
    """Return the tensors that become arguments, each with a name unique in the module."""
    ends = (*model.graph.input, *model.graph.output)
    own = {tensor.name for tensor in model.graph.initializer}
    namer = Namer({value.name for value in ends} - own)
    found: dict[tuple[Scope, str], Parameter] = {}
    for graph, scope in subgraphs(model.graph):
        how = settings(graph)
        known = {} if scope else model.declared.trained
        trained = {
            tensor.name for tensor in graph.initializer if training and may_train(tensor, known)
        }
        for tensor in _tensors(graph):
            is_setting = tensor.name in how
            stored = tensor.name in trained and not is_setting
            if stored or not is_literal(tensor, setting=is_setting):
                said = known.get(tensor.name) if training else None
                name = namer.unique(tensor.name)
                found[scope, tensor.name] = Parameter(name, tensor, said is False, said is True)
    return found


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield the initializers of ``graph`` and the tensors of its Constant nodes, by value name."""
    yield from graph.initializer
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain:
            yield constant_tensor(node)


def constant_tensor(node: onnx.NodeProto) -> onnx.TensorProto:
    """Return what a Constant node holds as a tensor named like its result."""
    name, attribute = node.output[0], node.attribute[0]
    if attribute.type == onnx.AttributeProto.TENSOR:
        attribute.t.name = name
        return attribute.t
    value = onnx.helper.get_attribute_value(attribute)
    kind = {
        "float": onnx.TensorProto.FLOAT,
        "int": onnx.TensorProto.INT64,
        "string": onnx.TensorProto.STRING,
    }[attribute.name.removeprefix("value_").removesuffix("s")]
    many = attribute.name.endswith("s")
    shape = [len(value)] if many else []
    return onnx.helper.make_tensor(name, kind, shape, value if many else [value])
