"""Corrections of the shapes that ONNX infers; :mod:`shape_rules` computes the right sizes.

A node with a corrected shape is passed to inference as an operator of an unknown domain, with its
type declared. Everything that depends on it is then inferred from the right shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from tensoropt.compiler.protos.subgraphs import Scope, subgraphs
from tensoropt.compiler.shapes.shape_rules import OPEN, RULES, Call, Shape

__all__ = ["Corrections", "Place", "find_corrections", "is_masked", "mask", "unmask"]

Types = Mapping[str, onnx.TypeProto]
Literals = Mapping[str, onnx.TensorProto]

Place = tuple[int, int]
"""The position of a node: its graph's index in the order of `subgraphs`, and its own there."""

Corrections = dict[Place, dict[str, onnx.TypeProto]]
"""The types of the results, by name, of nodes that are inferred wrongly."""

_DOMAIN = "tensoropt.corrected"
_MOST_BYTES = 1 << 16  # size limit of a literal that rules read


def find_corrections(proto: onnx.ModelProto) -> Corrections:
    """Return the nodes of an inferred ``proto`` with wrong shapes; linear in the nodes."""
    found: Corrections = {}
    types: dict[Scope, Types] = {}
    literals: dict[Scope, Literals] = {}
    for index, (graph, scope) in enumerate(subgraphs(proto.graph)):
        outer = _outer(scope, types)
        types[scope] = {**(types[outer] if scope else {}), **dict(_types(graph))}
        literals[scope] = {**(literals[outer] if scope else {}), **dict(_literals(graph))}
        for at, node in enumerate(graph.node):
            corrected = _correct(node, types[scope], literals[scope])
            if corrected:
                found[index, at] = corrected
    return found


def _outer(scope: Scope, known: Mapping[Scope, Types]) -> Scope:
    """Return the scope that encloses ``scope``."""
    return next((scope[:end] for end in reversed(range(len(scope))) if scope[:end] in known), ())


def _types(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TypeProto]]:
    for tensor in graph.initializer:
        kind = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        yield tensor.name, kind
    for info in (*graph.value_info, *graph.output, *graph.input):
        if info.type.HasField("tensor_type"):
            yield info.name, info.type


def _literals(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield the initializers of ``graph``, and the tensors and integers of its Constant nodes."""
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain and len(node.attribute) == 1:
            attribute = node.attribute[0]
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield node.output[0], attribute.t
            elif attribute.name in ("value_int", "value_ints"):
                many = attribute.name == "value_ints"
                value = np.array(attribute.ints if many else attribute.i, np.int64)
                yield node.output[0], numpy_helper.from_array(value)


def _correct(
    node: onnx.NodeProto, types: Types, literals: Literals
) -> dict[str, onnx.TypeProto] | None:
    """Return the right types of the results of ``node``, or ``None`` if inference has them."""
    rule = RULES.get(f"{node.domain}.{node.op_type}" if node.domain else node.op_type)
    names = [name for name in node.output if name]
    if rule is None or not names:
        return None
    shapes = [_sizes(types.get(name)) for name in node.input]
    arrays = {at: _array(literals[n]) for at, n in enumerate(node.input) if n in literals}
    known = {at: array for at, array in arrays.items() if array is not None}
    shape = rule(Call(node, shapes, known))
    if shape is None or all(_agrees(shape, _sizes(types.get(name))) for name in names):
        return None
    element = types.get(node.input[0])
    return {name: _type_of(shape, types.get(name) or element) for name in names}


def _array(tensor: onnx.TensorProto) -> npt.NDArray[np.generic] | None:
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    if external or tensor.data_type == onnx.TensorProto.STRING or tensor.ByteSize() > _MOST_BYTES:
        return None
    return np.asarray(numpy_helper.to_array(tensor))


def _sizes(kind: onnx.TypeProto | None) -> Shape | None:
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    return [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in dims]


def _agrees(shape: Shape, inferred: Shape | None) -> bool:
    """Return whether ``inferred`` has exactly the sizes that ``shape`` states."""
    if inferred is None or len(inferred) != len(shape):
        return False
    pairs = zip(shape, inferred, strict=True)
    return all(own is None or own == (OPEN if other is None else other) for own, other in pairs)


def _type_of(shape: Shape, inferred: onnx.TypeProto | None) -> onnx.TypeProto:
    """Return the type of ``shape``, taking unstated sizes from ``inferred``."""
    corrected, old = onnx.TypeProto(), _sizes(inferred)
    if inferred is not None:
        corrected.tensor_type.elem_type = inferred.tensor_type.elem_type
    corrected.tensor_type.shape.SetInParent()
    for at, size in enumerate(shape):
        dim = corrected.tensor_type.shape.dim.add()
        if size is None and inferred is not None and old is not None and len(old) == len(shape):
            dim.CopyFrom(inferred.tensor_type.shape.dim[at])
        elif size is not None and size != OPEN:
            dim.dim_value = size
    return corrected


def mask(proto: onnx.ModelProto, wrong: Corrections) -> onnx.ModelProto:
    """Return a copy in which ONNX does not know the nodes in ``wrong``, but has their types."""
    corrected = onnx.ModelProto()
    corrected.CopyFrom(proto)
    graphs = [graph for graph, _ in subgraphs(corrected.graph)]
    for (index, at), types in wrong.items():
        graph = graphs[index]
        graph.node[at].domain = f"{_DOMAIN}.{graph.node[at].domain}"
        for name, kind in types.items():
            _declare(graph, name, kind)
    for domain in {graphs[index].node[at].domain for index, at in wrong}:
        corrected.opset_import.add(domain=domain, version=1)
    return corrected


def _declare(graph: onnx.GraphProto, name: str, kind: onnx.TypeProto) -> None:
    for info in (*graph.output, *graph.value_info):
        if info.name == name:
            info.type.CopyFrom(kind)
            return
    graph.value_info.add(name=name).type.CopyFrom(kind)


def is_masked(node: onnx.NodeProto) -> bool:
    """Return whether the domain of ``node`` was changed by :func:`mask`."""
    return bool(node.domain.startswith(f"{_DOMAIN}."))


def unmask(proto: onnx.ModelProto) -> None:
    """Restore the domains of masked nodes."""
    for graph, _ in subgraphs(proto.graph):
        for node in graph.node:
            node.domain = node.domain.removeprefix(f"{_DOMAIN}.")
    entries = [entry for entry in proto.opset_import if not entry.domain.startswith(_DOMAIN)]
    del proto.opset_import[:]
    proto.opset_import.extend(entries)
