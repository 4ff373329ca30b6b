"""What the exporter of a model says of its tensors: which of them are parameters to train."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

__all__ = ["Declared", "declared"]

_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_FOLDED = "pkg.onnxscript.optimizer.folded_from"
_INPUT = re.compile(r"^\S+: ([A-Z_]+) target='([^']*)'", re.MULTILINE)
_FORMULA = re.compile(r"val_\d+|_?lifted_tensor\w*")
_PATH = re.compile(r"[A-Za-z_]\w*(\.\w+)*")


@dataclass(frozen=True)
class Declared:
    """What is known of the tensors of a main graph.

    ``trained`` says by name whether training changes them, and nothing of those that are not in
    it. ``merged`` are initializers that Identity nodes give further names. ``lost`` are
    parameters that the exporter lists and the graph does not have; ``None`` without a list.
    """

    trained: Mapping[str, bool] = field(default_factory=dict)
    merged: tuple[str, ...] = ()
    lost: tuple[str, ...] | None = None


def declared(proto: onnx.ModelProto) -> Declared:
    """Return what ``proto`` says of its tensors.

    ``torch.export`` lists what it exports: parameters are trained; buffers, such as masks and
    tables of angles, and literals are not; what the exporter computed of several is trained where
    a parameter is among them. Of a model of its older exporter, an initializer without
    dimensions is trained if it is called as an attribute is. Tensors of Constant nodes, which no
    exporter makes of parameters, are not. Linear in the model.
    """
    graph = proto.graph
    said = {name: False for node in graph.node if _is_constant(node) for name in node.output}
    signature = next((e.value for e in graph.metadata_props if e.key == _SIGNATURE), None)
    if signature is not None:
        return _listed(graph, signature, said)
    if proto.producer_name != "pytorch":
        return Declared(said)
    said.update({t.name: True for t in graph.initializer if not t.dims and _is_path(t.name)})
    return Declared(said, _merged(graph))


def _merged(graph: onnx.GraphProto) -> tuple[str, ...]:
    stored = {tensor.name for tensor in graph.initializer}
    read = (node.input[0] for node in graph.node if node.op_type == "Identity")
    return tuple(dict.fromkeys(name for name in read if name in stored))


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx")


def _is_path(name: str) -> bool:
    """Say whether a name is that of a module's attribute, as `head.scale`."""
    return _PATH.fullmatch(name) is not None and _FORMULA.fullmatch(name) is None


def _listed(graph: onnx.GraphProto, signature: str, said: dict[str, bool]) -> Declared:
    """Return what the signature of an exported program says; adds to ``said``."""
    kinds = {target: kind == "PARAMETER" for kind, target in _INPUT.findall(signature)}
    folded = {value.name: _folded(value) for value in graph.value_info}
    for tensor in graph.initializer:
        if tensor.name in kinds:
            said[tensor.name] = kinds[tensor.name]
        elif (origins := folded.get(tensor.name)) is not None:
            said[tensor.name] = any(kinds.get(origin, False) for origin in origins)
        elif _FORMULA.fullmatch(tensor.name):
            said[tensor.name] = False
    own = [tensor.name for tensor in graph.initializer]
    there = {*own, *(origin for name in own for origin in folded.get(name) or ())}
    lost = tuple(name for name, trained in kinds.items() if trained and name not in there)
    return Declared(said, (), lost)


def _folded(value: onnx.ValueInfoProto) -> list[str] | None:
    """Return the names of what a tensor was computed of by the exporter."""
    text = next((e.value for e in value.metadata_props if e.key == _FOLDED), None)
    try:
        folded = None if text is None else ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return None
    return [str(name) for name in folded] if isinstance(folded, list) else None
