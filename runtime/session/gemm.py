"""Our own kernel for products of matrices that all change between runs.

ONNX Runtime packs weights for its products when a session is created. In training weights are
inputs, so every product packs both operands, and a transposed left one, as in the gradient of a
weight, slowly.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensoropt.runtime.ops.library import vector_lanes
from tensoropt.runtime.session.types import FLOAT32, Type, attributes, tensor_types
from tensoropt.runtime.support.collectives import DOMAIN, import_domain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import onnx

__all__ = ["use_own_gemms"]

_GEMM, _MATRIX = "Gemm", 2

_LEAST = {8: {False: 1 << 28, True: 1 << 26}, 16: {False: 1 << 26, True: 1 << 23}}
"""Multiplications from which our kernel is faster, by the floats of a vector and by whether the
left operand is transposed (``python bench/kernels/gemm.py``)."""


def use_own_gemms(model: onnx.ModelProto, typed: onnx.ModelProto) -> bool:
    """Replace large products by our kernel; return True if any is replaced.

    Applies to float32 on processors with vectors of 8 floats: to Gemm nodes without factors, and to
    MatMul nodes with one matrix on the right. Changes ``model`` in place; ``typed`` has the types
    of tensors.
    """
    from onnx import helper

    least = _LEAST.get(vector_lanes())
    if least is None:
        return False
    types = _with_reshaped(tensor_types(typed.graph), model.graph.node)
    nodes = [node for node in model.graph.node if _fits(node, types, least)]
    for node in nodes:
        settings = attributes(node)
        flags = {name: settings.get(name, 0) for name in ("transA", "transB")}
        own = helper.make_node(
            _GEMM, node.input, node.output, name=node.name, domain=DOMAIN, **flags
        )
        node.CopyFrom(own)
    if nodes:
        import_domain(model)
    return bool(nodes)


def _with_reshaped(types: Mapping[str, Type], nodes: Iterable[onnx.NodeProto]) -> dict[str, Type]:
    """Return ``types``, and types of the tensors that ONNX Runtime reshapes to and from matrices.

    Of these only the number of elements is known: they have one dimension here.
    """
    known = dict(types)
    for node in nodes:
        if node.op_type == "Reshape" and not node.domain:
            for name, other in ((node.input[0], node.output[0]), (node.output[0], node.input[0])):
                if name not in known and other in known:
                    kind, shape = known[other]
                    known[name] = kind, (math.prod(shape),)
    return known


def _fits(node: onnx.NodeProto, types: Mapping[str, Type], least: Mapping[bool, int]) -> bool:
    if node.op_type not in (_GEMM, "MatMul") or node.domain:
        return False
    operands = [*node.input[:2], node.output[0]]
    if any(types.get(name, (0, ()))[0] != FLOAT32 for name in operands):
        return False
    left, right = (len(types[name][1]) for name in operands[:2])
    if node.op_type == "MatMul" and (left < _MATRIX or right != _MATRIX):
        return False
    settings = attributes(node)
    if settings.get("alpha", 1.0) != 1.0 or settings.get("beta", 1.0) != 1.0:
        return False
    sizes = [math.prod(types[name][1]) for name in operands]
    # Each of the three dimensions is in two of the matrices.
    multiplications = math.isqrt(math.prod(sizes))
    if multiplications < least[bool(settings.get("transA", 0))]:
        return False
    bias = node.input[2] if len(node.input) > 2 else ""
    columns = multiplications // sizes[0]
    return not bias or types.get(bias) == (FLOAT32, (columns,))
