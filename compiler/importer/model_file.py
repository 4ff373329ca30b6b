"""Model files: the graph without its weights, with functions inlined and names checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import onnx
from google.protobuf.message import DecodeError

from tensoropt.compiler.importer.dimensions import bind_dims, name_dims
from tensoropt.compiler.importer.exporter_metadata import ExporterMetadata, read_metadata
from tensoropt.compiler.importer.fixed_sizes import check_sizes, has_bodies
from tensoropt.compiler.importer.sparse import densify
from tensoropt.compiler.importer.storage import Folder, StoredTensor, fetch, locate
from tensoropt.compiler.importer.text_fields import find_undecoded_text
from tensoropt.compiler.importer.training_conversion import convert_opset, may_train
from tensoropt.compiler.importer.wire import MalformedError, model_without_weights
from tensoropt.compiler.protos.graph_checks import check_graph, node_problem
from tensoropt.compiler.protos.literals import is_literal, settings
from tensoropt.compiler.protos.names import Namer
from tensoropt.compiler.protos.subgraphs import Scope, names_read, subgraphs
from tensoropt.compiler.protos.versions import max_opset
from tensoropt.compiler.support import native
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.kernels import runs_on_cpu
from tensoropt.dialects.onnx import known_ops
from tensoropt.runtime.plan.dims import Sizes
from tensoropt.runtime.support.collectives import ATTENTION_KERNELS, DOMAIN

__all__ = ["Model", "Parameter", "load_model", "normalise", "read_proto"]

_DEFAULT_OPSET = 20  # for a model without standard operators
_LFS_POINTER = b"version https://git-lfs"
_SKIP_NORMALISATIONS = ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")


class Parameter(NamedTuple):
    """A tensor that stays in the model file: its name in the module and its TensorProto.

    ``fixed`` means that training leaves it unchanged by default, ``listed`` that the exporter lists
    it as a parameter to train.
    """

    name: str
    tensor: onnx.TensorProto
    fixed: bool = False
    listed: bool = False


@dataclass
class Model:
    """A model without weights, its parameters by (scope, ONNX name), and exporter metadata."""

    path: Path
    proto: onnx.ModelProto
    parameters: dict[tuple[Scope, str], Parameter] = field(default_factory=dict)
    metadata: ExporterMetadata = field(default_factory=ExporterMetadata)

    @property
    def graph(self) -> onnx.GraphProto:
        return self.proto.graph

    @property
    def opsets(self) -> dict[str, int]:
        """The operator set version by domain; the standard domain is the empty string."""
        return {_domain(o.domain): o.version for o in self.proto.opset_import}


def load_model(
    path: Path, dims: Mapping[str, Sizes] | None = None, *, training: bool = False
) -> Model:
    """Return the model in ``path``; ``dims`` gives sizes or ranges to symbolic dimensions.

    Its nodes are in topological order and every name has one definition. With ``training``,
    standard operators are converted to ``TRAINING_OPSET`` or later. Files of external data may be
    missing, except for literals. Raises :class:`UserError` for a file that is not a valid model.
    """
    proto = read_proto(path)
    _check_versions(path, proto)
    _drop_known_functions(proto, training)
    if proto.functions:
        proto = _inline(path, proto)
    for graph, _ in subgraphs(proto.graph):
        normalise(graph)
        densify(path, graph)
    name_dims(proto)
    fixed = {name: size for name, size in (dims or {}).items() if isinstance(size, int)}
    before: onnx.ModelProto | None = None  # with open sizes
    if fixed and has_bodies(proto):
        before = onnx.ModelProto()
        before.CopyFrom(proto)
    bind_dims(path, proto, dims or {})
    check_graph(path, proto)
    metadata = read_metadata(proto) if training else ExporterMetadata()
    trained = metadata.trained if training else None
    _fetch_literals(path, proto, trained)
    if before is not None:
        _fetch_literals(path, before, trained)
        check_sizes(path, before, fixed)
    for graph, _ in subgraphs(proto.graph):
        _drop_empty_axes(graph)
    _drop_statistics(proto.graph)
    if training:
        proto = convert_opset(path, proto)
        for graph, _ in subgraphs(proto.graph):
            normalise(graph)
        check_graph(path, proto)
    model = Model(path, proto, metadata=metadata)
    _prune_opsets(model)
    model.parameters = _find_parameters(model, training)
    return model


def read_proto(path: Path) -> onnx.ModelProto:
    """Read the model in the file ``path``, without weights; raises UserError if it is not one."""
    if path.is_dir():
        raise UserError(f"{path}: is a directory, expected an ONNX model")
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        proto = onnx.ModelProto.FromString(model_without_weights(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except (MalformedError, DecodeError) as error:
        got = _describe(path, error)
        raise UserError(f"{path}: not an ONNX model, expected a ModelProto, got: {got}") from None
    if not proto.HasField("graph") or not proto.ir_version:
        raise UserError(f"{path}: not an ONNX model, expected a ModelProto with a graph")
    if (found := find_undecoded_text(proto)) is not None:
        field, text = found
        raise UserError(f"{path}: field '{field}' is damaged, expected UTF-8 text, got: {text!r}")
    return proto


def _fetch_literals(path: Path, proto: onnx.ModelProto, trained: Mapping[str, bool] | None) -> None:
    folder = Folder(path)
    for graph, scope in subgraphs(proto.graph):
        for tensor, is_parameter in _roles(graph, scope, trained):
            if is_parameter:
                continue
            stored = locate(folder, tensor)
            if stored.is_missing:
                raise _missing_literal(path, graph, stored)
            fetch(folder, tensor)


def _missing_literal(path: Path, graph: onnx.GraphProto, stored: StoredTensor) -> UserError:
    """Return the error for a literal of ``graph`` in a missing file, with the first reader."""
    name = stored.tensor.name
    nodes = (node for inner, _ in subgraphs(graph) for node in inner.node)
    reader = next((node for node in nodes if name in node.input), None)
    text = (
        f"needs the values of '{name}' in the external data file '{stored.path}', which does not "
        "exist, expected it on disk"
    )
    return UserError(f"{path}: {text if reader is None else node_problem(reader, text)}")


def _describe(path: Path, error: Exception) -> str:
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
        limit = max_opset(_domain(entry.domain))
        if limit is not None and entry.version > limit:
            raise UserError(
                f"{path}: opset of domain '{entry.domain or 'ai.onnx'}' is too new for "
                f"onnxruntime, expected at most {limit}, got: {entry.version}"
            )


def _drop_known_functions(proto: onnx.ModelProto, training: bool) -> None:
    """Drop the functions that ONNX Runtime never reads: it has these operators itself.

    Exporters attach such bodies for other runtimes, and a body need not support all uses of the
    operator. Bodies in operators of the standard remain if ONNX Runtime has no kernel, and in
    training, which may have no gradient of the operator.
    """
    others = [f for f in proto.functions if not _is_known(f, training)]
    if len(others) < len(proto.functions):
        del proto.functions[:]
        proto.functions.extend(others)


def _is_known(function: onnx.FunctionProto, training: bool) -> bool:
    domain = _domain(function.domain)
    if domain == DOMAIN and function.name in ATTENTION_KERNELS:
        return True  # in graphs of plans, a body for each form
    if function.overload or function.name not in known_ops(domain):
        return False
    return not domain or (not training and runs_on_cpu(domain, function.name))


def _inline(path: Path, proto: onnx.ModelProto) -> onnx.ModelProto:
    seconds = native.seconds_for(len(proto.graph.node))
    try:
        model_bytes = native.call(_inline_bytes, proto.SerializeToString(), seconds=seconds)
    except (native.NativeError, native.NativeFailureError) as error:
        text = str(error).splitlines()[0]
        raise UserError(f"{path}: functions cannot be inlined: {text}") from None
    inlined = onnx.ModelProto.FromString(model_bytes)
    del inlined.functions[:]
    return inlined


def _inline_bytes(model: bytes) -> bytes:
    """Return the model with its functions inlined; runs in the child."""
    import onnx.inliner

    proto = onnx.ModelProto.FromString(model)
    inlined = onnx.inliner.inline_local_functions(proto, convert_version=True)
    return bytes(inlined.SerializeToString())


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def normalise(graph: onnx.GraphProto) -> None:
    """Give every node a unique name, and the standard domain its short form."""
    for index, node in enumerate(graph.node):
        if node.domain == "ai.onnx":
            node.domain = ""
        if not node.name:
            node.name = f"{node.op_type}_{index}"


def _drop_empty_axes(graph: onnx.GraphProto) -> None:
    """Remove the axes of a Squeeze if the list is empty.

    ONNX Runtime treats both forms the same: all dimensions of size 1 are removed. ONNX's shape
    inference keeps them for an empty list.
    """
    empty = {tensor.name for tensor in _tensors(graph) if 0 in tensor.dims}
    for node in graph.node:
        if node.op_type == "Squeeze" and not node.domain and empty.intersection(node.input[1:]):
            del node.input[1:]


def _drop_statistics(graph: onnx.GraphProto) -> None:
    """Leave out the mean and the deviation of SkipLayerNormalization if nothing reads them.

    Exporters name all four results, and ONNX Runtime has no types for these two.
    """
    used = names_read(graph)
    for node in (node for inner, _ in subgraphs(graph) for node in inner.node):
        if node.op_type in _SKIP_NORMALISATIONS:
            for number in range(1, min(len(node.output), 3)):
                if node.output[number] not in used:
                    node.output[number] = ""


def _prune_opsets(model: Model) -> None:
    """Remove the imports of domains that no node uses, such as those of inlined functions.

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
    trained = model.metadata.trained if training else None
    for graph, scope in subgraphs(model.graph):
        for tensor, is_parameter in _roles(graph, scope, trained):
            if is_parameter:
                label = trained.get(tensor.name) if trained is not None and not scope else None
                name = namer.unique(tensor.name)
                found[scope, tensor.name] = Parameter(name, tensor, label is False, label is True)
    return found


def _roles(
    graph: onnx.GraphProto, scope: Scope, trained: Mapping[str, bool] | None
) -> Iterator[tuple[onnx.TensorProto, bool]]:
    """Yield the tensors of ``graph``; true for each that becomes an argument, not a literal.

    ``trained`` is the exporter's metadata on the main graph, ``None`` without training.
    """
    setting_names = settings(graph)
    known = {} if scope or trained is None else trained
    tensors = [*_tensors(graph)]
    # The metadata decides about Constant nodes of the main graph.
    weights = graph.initializer if scope else tensors
    may = {t.name for t in weights if trained is not None and may_train(t, known)}
    for tensor in tensors:
        is_setting = tensor.name in setting_names
        is_trained = tensor.name in may and not is_setting
        yield tensor, is_trained or not is_literal(tensor, setting=is_setting)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield the initializers of ``graph`` and the tensors of its Constant nodes, by value name."""
    yield from graph.initializer
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain:
            yield constant_tensor(node)


def constant_tensor(node: onnx.NodeProto) -> onnx.TensorProto:
    """Return the value of a Constant node as a tensor named like its result."""
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
