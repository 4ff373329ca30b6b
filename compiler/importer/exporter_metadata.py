"""Metadata that exporters write about tensors: the parameters to train."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx

__all__ = ["ExporterMetadata", "read_metadata"]

_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_FOLDED = "pkg.onnxscript.optimizer.folded_from"
_INPUT = re.compile(r"^\S+: ([A-Z_]+) target='([^']*)'", re.MULTILINE)
_FORMULA = re.compile(r"val_\d+|_?lifted_tensor\w*")
_PATH = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
_BUFFER = re.compile(r"mask$|(^|[._])((cos|sin)(_cached)?|inv_freq|pe|running_mean|running_var)$")
_READ = "pkg.torch.onnx.fx_node"
_ARGUMENT = re.compile(r"%(\w+)")
_SCOPES = "pkg.torch.onnx.name_scopes"
_PLACEHOLDER = "pkg.torch.onnx.original_node_name"


@dataclass(frozen=True)
class ExporterMetadata:
    """The known facts about the tensors of a main graph.

    ``trained`` maps names to whether training changes the tensor; other tensors are unknown.
    ``merged`` are initializers that Identity nodes give further names. ``lost`` are parameters that
    the exporter lists and the graph lacks; ``None`` without a list. ``tied`` are other names of
    initializers in the PyTorch model, by initializer.
    """

    trained: Mapping[str, bool] = field(default_factory=dict)
    merged: tuple[str, ...] = ()
    lost: tuple[str, ...] | None = None
    tied: Mapping[str, list[str]] = field(default_factory=dict)


def read_metadata(proto: onnx.ModelProto) -> ExporterMetadata:
    """Return the metadata of the tensors of ``proto``. Linear in the model.

    ``torch.export`` lists the tensors that it exports: parameters are trained; buffers, such as
    masks and tables of angles, and literals are not. A tensor that the exporter folded is trained
    if it was computed from a parameter. In a model of the older PyTorch exporter, an initializer is
    trained if it is named like an attribute, other than a mask, a table or a statistic. Tensors of
    Constant nodes are trained only in models without initializers, which Paddle2ONNX writes.
    """
    graph = proto.graph
    trained: dict[str, bool] = {}
    for node in graph.node if graph.initializer else ():
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            trained.update(dict.fromkeys(node.output, False))
    signature = _entry(graph.metadata_props, _SIGNATURE)
    if signature is not None:
        return _from_signature(graph, signature, trained)
    if proto.producer_name != "pytorch":
        return ExporterMetadata(trained)
    trained.update({t.name: True for t in graph.initializer if _is_parameter(t.name)})
    stored = {tensor.name for tensor in graph.initializer}
    copied = (node.input[0] for node in graph.node if node.op_type == "Identity")
    return ExporterMetadata(trained, tuple(dict.fromkeys(n for n in copied if n in stored)))


def _is_parameter(name: str) -> bool:
    """Return whether a name is the path of a module's attribute, such as `head.scale`.

    Buffers have such names too; masks, tables of angles and running statistics are known by it.
    """
    is_path = _PATH.fullmatch(name) is not None and _FORMULA.fullmatch(name) is None
    return is_path and _BUFFER.search(name) is None


def _from_signature(
    graph: onnx.GraphProto, signature: str, trained: dict[str, bool]
) -> ExporterMetadata:
    """Return the metadata in the signature of an exported program; adds to ``trained``."""
    kinds = {target: kind == "PARAMETER" for kind, target in _INPUT.findall(signature)}
    folded = {value.name: _origins(value) for value in graph.value_info}
    for tensor in graph.initializer:
        if tensor.name in kinds:
            trained[tensor.name] = kinds[tensor.name]
        elif (origins := folded.get(tensor.name)) is not None:
            trained[tensor.name] = any(kinds.get(origin, False) for origin in origins)
        elif _FORMULA.fullmatch(tensor.name):
            trained[tensor.name] = False
    own = [tensor.name for tensor in graph.initializer]
    present = {*own, *(origin for name in own for origin in folded.get(name) or ())}
    absent = [name for name, is_trained in kinds.items() if is_trained and name not in present]
    tied = _tied(graph, absent)
    names = {name for group in tied.values() for name in group}
    return ExporterMetadata(trained, (), tuple(n for n in absent if n not in names), tied)


def _tied(graph: onnx.GraphProto, absent: Sequence[str]) -> dict[str, list[str]]:
    """Return which of the ``absent`` parameters are other names of initializers.

    ``torch.export`` gives the uses of tied parameters one placeholder. A node then reads the
    placeholder of an initializer in the module of an absent parameter, such as `wte` of
    `wte.weight`.
    """
    placeholders = {v.name: _entry(v.metadata_props, _PLACEHOLDER) for v in graph.value_info}
    stored = [t.name for t in graph.initializer if placeholders.get(t.name)]
    owners = {name: name.rpartition(".")[0] for name in absent}
    found: dict[str, list[str]] = {}
    for node in graph.node:
        scopes = _read_list(_entry(node.metadata_props, _SCOPES)) or []
        own = [name for name, owner in owners.items() if owner and owner in scopes[-2:-1]]
        if not own:
            continue
        reads = set(_ARGUMENT.findall(_entry(node.metadata_props, _READ) or ""))
        for name in stored:
            same = [each for each in own if _last(each) == _last(name)]
            if placeholders[name] in reads and len(same) == 1:
                found.setdefault(name, []).append(same[0])
                del owners[same[0]]
    return found


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _entry(entries: Iterable[onnx.StringStringEntryProto], key: str) -> str | None:
    return next((entry.value for entry in entries if entry.key == key), None)


def _read_list(text: str | None) -> list[str] | None:
    """Return the names in the text of a list of Python, None for any other text."""
    try:
        names = None if text is None else ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return None
    return [str(name) for name in names] if isinstance(names, list) else None


def _origins(value: onnx.ValueInfoProto) -> list[str] | None:
    """Return the names of the tensors that the exporter computed a tensor from."""
    return _read_list(_entry(value.metadata_props, _FOLDED))
