"""Types of what operators make that only the rule of a person tells of."""

from __future__ import annotations

import onnx

from tensoropt.compiler.sharding.rule.files import has_user_rule, user_result_shapes
from tensoropt.compiler.sharding.rule.op_info import TensorInfo

__all__ = ["given_types", "has_given_rule"]

Types = dict[str, onnx.TypeProto]


def has_given_rule(node: onnx.NodeProto) -> bool:
    """Say whether a person gave a rule for the operator of ``node``."""
    return has_user_rule(_name(node))


def given_types(graph: onnx.GraphProto, known: Types, declared: Types) -> Types:
    """Return the types that rules tell and ``known`` does not have; those ``declared`` count more.

    A dimension of a result is as long as those of operands along the same factor; elements are of
    the type of the first operand. Linear in the nodes.
    """
    found: Types = {}
    for node in graph.node:
        if has_given_rule(node) and any(name and name not in known for name in node.output):
            said = {name: declared[name] for name in node.output if name in declared}
            found.update({**_of_node(node, known), **said})
    return found


def _of_node(node: onnx.NodeProto, known: Types) -> Types:
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
