"""Metadata that exporters write about tensors: the parameters to train."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

__all__ = ["ExporterMetadata", "read_metadata"]

_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_FOLDED = "pkg.onnxscript.optimizer.folded_from"
_INPUT = re.compile(r"^\S+: ([A-Z_]+) target='([^']*)'", re.MULTILINE)
_FORMULA = re.compile(r"val_\d+|_?lifted_tensor\w*")
_PATH = re.compile(r"[A-Za-z_]\w*(\.\w+)*")


@dataclass(frozen=True)
class ExporterMetadata:
    """The known facts about the tensors of a main graph.

    ``trained`` maps names to whether training changes the tensor; other tensors are unknown.
    ``merged`` are initializers that Identity nodes give further names. ``lost`` are parameters that
    the exporter lists and the graph lacks; ``None`` without a list.
    """

    trained: Mapping[str, bool] = field(default_factory=dict)
    merged: tuple[str, ...] = ()
    lost: tuple[str, ...] | None = None


def read_metadata(proto: onnx.ModelProto) -> ExporterMetadata:
    """Return the metadata of the tensors of ``proto``. Linear in the model.

    ``torch.export`` lists the tensors that it exports: parameters are trained; buffers, such as
    masks and tables of angles, and literals are not. A tensor that the exporter folded is trained
    if it was computed from a parameter. In a model of the older PyTorch exporter, a scalar
    initializer is trained if it is named like an attribute. Tensors of Constant nodes are trained
    only in models without initializers, which Paddle2ONNX writes.
    """
    graph = proto.graph
    trained: dict[str, bool] = {}
    for node in graph.node if graph.initializer else ():
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            trained.update(dict.fromkeys(node.output, False))
    signature = next((e.value for e in graph.metadata_props if e.key == _SIGNATURE), None)
    if signature is not None:
        return _from_signature(graph, signature, trained)
    if proto.producer_name != "pytorch":
        return ExporterMetadata(trained)
    trained.update({t.name: True for t in graph.initializer if not t.dims and _is_path(t.name)})
    stored = {tensor.name for tensor in graph.initializer}
    copied = (node.input[0] for node in graph.node if node.op_type == "Identity")
    return ExporterMetadata(trained, tuple(dict.fromkeys(n for n in copied if n in stored)))


def _is_path(name: str) -> bool:
    """Return whether a name is the path of a module's attribute, such as `head.scale`."""
    return _PATH.fullmatch(name) is not None and _FORMULA.fullmatch(name) is None


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
    lost = tuple(name for name, is_trained in kinds.items() if is_trained and name not in present)
    return ExporterMetadata(trained, (), lost)


def _origins(value: onnx.ValueInfoProto) -> list[str] | None:
    """Return the names of the tensors that the exporter computed a tensor from."""
    text = next((e.value for e in value.metadata_props if e.key == _FOLDED), None)
    try:
        folded = None if text is None else ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return None
    return [str(name) for name in folded] if isinstance(folded, list) else None
