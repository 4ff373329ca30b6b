"""Result types of operators that are known only from a user's sharding rule."""

from __future__ import annotations

import onnx

from tensoropt.compiler.sharding.rule.files import has_user_rule, user_result_shapes
from tensoropt.compiler.sharding.rule.op_info import TensorInfo

__all__ = ["has_rule", "rule_types"]

Types = dict[str, onnx.TypeProto]


def has_rule(node: onnx.NodeProto) -> bool:
    """Return whether the user supplied a rule for the operator of ``node``."""
    return has_user_rule(_name(node))


def rule_types(graph: onnx.GraphProto, known: Types, declared: Types) -> Types:
    """Return the types that rules determine and ``known`` lacks; ``declared`` ones come first.

    A dimension of a result is as long as the dimensions of operands along the same factor; elements
    have the type of the first operand. Linear in the nodes.
    """
    found: Types = {}
    for node in graph.node:
        if has_rule(node) and any(name and name not in known for name in node.output):
            in_file = {name: declared[name] for name in node.output if name in declared}
            found.update({**_node_types(node, known), **in_file})
    return found


def _node_types(node: onnx.NodeProto, known: Types) -> Types:
    names = [name for name in node.input]
    if any(name and name not in known for name in names):
        return {}
    operands = [_info(known[name]) if name else None for name in names]
    shapes = user_result_shapes(_name(node), operands)
    first = known[names[0]].tensor_type.elem_type if names and names[0] else None
    if shapes is None or first is None:
        return {}
    pairs = zip(node.output, shapes, strict=False)
    return {
        name: onnx.helper.make_tensor_type_proto(first, shape)
        for name, shape in pairs
        if name and name not in known
    }


def _info(kind: onnx.TypeProto) -> TensorInfo:
    dims = kind.tensor_type.shape.dim
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in dims)
    return TensorInfo(shape, "", 0)


def _name(node: onnx.NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type
