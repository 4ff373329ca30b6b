"""ONNX's shape inference, run in the child: it does not survive every model, right or wrong.

A node at which it dies in a model that ONNX Runtime loads is hidden from it; the types of what such
a node makes are then ONNX Runtime's.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator

import onnx
from onnx import shape_inference

from tensoropt.compiler.protos.graph_checks import node_problem
from tensoropt.compiler.protos.subgraphs import Scope, subgraphs
from tensoropt.compiler.shapes.corrections import Corrections, Place, is_masked, masked, unmask
from tensoropt.compiler.shapes.runtime_types import loads
from tensoropt.compiler.support import native
from tensoropt.compiler.support.errors import UserError

__all__ = ["run"]


def run(proto: onnx.ModelProto, *, strict: bool, values: bool) -> onnx.ModelProto:
    """Return what ONNX infers, with nodes masked that it does not survive.

    Raises :class:`NativeError` with its words if it refuses, :class:`UserError` that names the node
    at which it dies where ONNX Runtime does not load the model either.
    """
    while True:
        try:
            return _inferred(proto, strict, values, native.seconds_for(len(proto.graph.node)))
        except native.NativeFailureError as failure:
            proto = _without_fatal(proto, failure, strict, values)


def _without_fatal(
    proto: onnx.ModelProto, failure: Exception, strict: bool, values: bool
) -> onnx.ModelProto:
    """Return ``proto`` with the operator masked that ends inference, wherever it stands.

    Where one node of it is fatal, others are: each would cost a search of its own.
    """
    nodes = _nodes(proto)
    fatal = _fatal(proto, list(nodes), strict, values)
    problem = f"types cannot be inferred: onnx {failure}"
    if fatal is None:
        raise UserError(problem)
    node = nodes[fatal]
    if is_masked(node) or not _is_right(proto):
        raise UserError(node_problem(node, problem))
    same: Corrections = {p: {} for p, n in nodes.items() if _operator(n) == _operator(node)}
    return masked(proto, same)


def _operator(node: onnx.NodeProto) -> tuple[str, str]:
    return node.domain, node.op_type


def _is_right(proto: onnx.ModelProto) -> bool:
    """Say whether ONNX Runtime loads ``proto``, with all of its nodes unmasked."""
    plain = masked(proto, {})
    unmask(plain)
    return loads(plain)


def _fatal(proto: onnx.ModelProto, places: list[Place], strict: bool, values: bool) -> Place | None:
    """Return the first place at which inference dies, ``None`` if it does so without any node.

    Logarithmic in the number of nodes.
    """

    def fails(count: int) -> bool:
        part = masked(proto, {place: {} for place in places[count:]})
        try:
            _inferred(part, strict, values, native.seconds_for(count, least=1))
        except native.NativeFailureError:
            return True
        except native.NativeError:
            return False
        return False

    count = bisect.bisect_left(range(len(places)), True, key=fails)
    return places[count - 1] if count else None


def _nodes(proto: onnx.ModelProto) -> dict[Place, onnx.NodeProto]:
    """Return all nodes in the order of inference: those of its bodies before a node."""
    graphs = {scope: index for index, (_, scope) in enumerate(subgraphs(proto.graph))}

    def visit(graph: onnx.GraphProto, scope: Scope) -> Iterator[tuple[Place, onnx.NodeProto]]:
        for at, node in enumerate(graph.node):
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    yield from visit(attribute.g, (*scope, (at, attribute.name)))
            yield (graphs[scope], at), node

    return dict(visit(proto.graph, ()))


def _inferred(proto: onnx.ModelProto, strict: bool, values: bool, seconds: int) -> onnx.ModelProto:
    model_bytes = native.call(
        _infer_shapes, proto.SerializeToString(), strict, values, seconds=seconds
    )
    return onnx.ModelProto.FromString(model_bytes)


def _infer_shapes(model: bytes, strict: bool, values: bool) -> bytes:
    """Return the model with inferred types; runs in the child."""
    inferred = shape_inference.infer_shapes(
        model, check_type=True, strict_mode=strict, data_prop=values
    )
    return bytes(inferred.SerializeToString())
