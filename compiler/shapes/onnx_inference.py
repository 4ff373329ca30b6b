"""ONNX's shape inference, run in a child process: it can crash, even on a valid model.

If it crashes at a node of a model that ONNX Runtime loads, that operator is masked, and ONNX
Runtime supplies the types of its results.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator

import onnx
from onnx import shape_inference

from tensoropt.compiler.protos.graph_checks import node_problem
from tensoropt.compiler.protos.subgraphs import Scope, subgraphs
from tensoropt.compiler.shapes.corrections import Corrections, Place, is_masked, mask, unmask
from tensoropt.compiler.shapes.runtime_types import loads
from tensoropt.compiler.support import native
from tensoropt.compiler.support.errors import UserError

__all__ = ["is_valid", "run"]


def run(proto: onnx.ModelProto, *, strict: bool, values: bool) -> onnx.ModelProto:
    """Return the inferred model; operators that crash inference are masked.

    Raises :class:`NativeError` with ONNX's message if inference refuses the model. Raises
    :class:`UserError` with the name of the node if inference crashes and ONNX Runtime does not load
    the model either.
    """
    while True:
        try:
            return _infer(proto, strict, values, native.seconds_for(len(proto.graph.node)))
        except native.NativeFailureError as failure:
            proto = _mask_fatal(proto, failure, strict, values)


def _mask_fatal(
    proto: onnx.ModelProto, failure: Exception, strict: bool, values: bool
) -> onnx.ModelProto:
    """Return ``proto`` with all nodes of the operator masked that crashes inference.

    Other nodes of the operator are likely to crash too, and each would cost a separate search.
    """
    nodes = _nodes(proto)
    fatal = _find_fatal(proto, list(nodes), strict, values)
    problem = f"types cannot be inferred: onnx {failure}"
    if fatal is None:
        raise UserError(problem)
    node = nodes[fatal]
    if is_masked(node) or not is_valid(proto):
        raise UserError(node_problem(node, problem))
    same: Corrections = {p: {} for p, n in nodes.items() if _operator(n) == _operator(node)}
    return mask(proto, same)


def _operator(node: onnx.NodeProto) -> tuple[str, str]:
    return node.domain, node.op_type


def is_valid(proto: onnx.ModelProto) -> bool:
    """Return whether ONNX Runtime loads ``proto`` with all of its nodes unmasked."""
    plain = mask(proto, {})
    unmask(plain)
    return loads(plain)


def _find_fatal(
    proto: onnx.ModelProto, places: list[Place], strict: bool, values: bool
) -> Place | None:
    """Return the first place where inference crashes, ``None`` if it crashes without any node.

    Logarithmic in the number of nodes.
    """

    def fails(count: int) -> bool:
        part = mask(proto, {place: {} for place in places[count:]})
        try:
            _infer(part, strict, values, native.seconds_for(count, least=1))
        except native.NativeFailureError:
            return True
        except native.NativeError:
            return False
        return False

    count = bisect.bisect_left(range(len(places)), True, key=fails)
    return places[count - 1] if count else None


def _nodes(proto: onnx.ModelProto) -> dict[Place, onnx.NodeProto]:
    """Return all nodes in the order of inference: the nodes of its bodies before a node."""
    graphs = {scope: index for index, (_, scope) in enumerate(subgraphs(proto.graph))}

    def visit(graph: onnx.GraphProto, scope: Scope) -> Iterator[tuple[Place, onnx.NodeProto]]:
        for at, node in enumerate(graph.node):
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    yield from visit(attribute.g, (*scope, (at, attribute.name)))
            yield (graphs[scope], at), node

    return dict(visit(proto.graph, ()))


def _infer(proto: onnx.ModelProto, strict: bool, values: bool, seconds: int) -> onnx.ModelProto:
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
