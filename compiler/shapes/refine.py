"""Shape inference over a module: propagates known sizes to every value."""

from __future__ import annotations

import onnx

from tensoropt.compiler.protos.emitter import Emitter
from tensoropt.compiler.protos.subgraphs import subgraphs
from tensoropt.compiler.protos.types import TypeTable, type_proto
from tensoropt.compiler.shapes.inference import Types, infer_types, value_types
from tensoropt.compiler.shapes.reshapes import write_reshapes
from tensoropt.compiler.shapes.symbols import Dims, dims_of
from tensoropt.compiler.sharding.rule.files import has_user_rule
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import (
    ATTENTION,
    ATTENTION_GRADIENT,
    ATTENTION_WITH_DROPOUT,
    BARRIER,
    BLOCKED_ATTENTION,
    BLOCKED_GRADIENT,
    MIXTURE_GRADIENT,
    function,
    node_name,
    op_name,
    owner,
)
from tensoropt.dialects.sizes import sizes_of_type, tensor_type

_OURS = frozenset(
    (
        ATTENTION,
        ATTENTION_GRADIENT,
        ATTENTION_WITH_DROPOUT,
        BLOCKED_ATTENTION,
        BLOCKED_GRADIENT,
        MIXTURE_GRADIENT,
    )
)
"""Operators of ours that stand for others of the standard or for kernels."""

__all__ = ["inferred_dims", "merge_types", "refine_types", "replace_value", "update_signature"]


def refine_types(module: ir.Module) -> bool:
    """Set the values of an unpartitioned ``module`` to inferred types; return whether any changed.

    Known dimensions never become unknown. The shape of a `Reshape` becomes a literal if symbolic
    dimensions determine it. Raises :class:`UserError` for incompatible types.
    """
    with module.context, ir.Location.unknown():
        names, types = _infer(module)
        changed = _apply(names, types)
        changed |= write_reshapes(module, {v: dims_of(types.get(n)) for v, n in names.items()})
        update_signature(module)
    return changed


def inferred_dims(module: ir.Module) -> dict[ir.Value, Dims]:
    """Return the dimensions of values: sizes, or the names that inference assigns to open sizes."""
    with module.context, ir.Location.unknown():
        names, types = _infer(module)
    every = {value: dims_of(types.get(name)) for value, name in names.items()}
    return {value: dims for value, dims in every.items() if dims is not None}


def _infer(module: ir.Module) -> tuple[dict[ir.Value, str], Types]:
    """Return the name of each value, and the types by name."""
    emitter = Emitter(module, {op_name("", BARRIER): _emit_identity})
    emitter.function(lambda argument: None)
    model = emitter.model()
    _declare_rule_results(model, emitter.values)
    types: Types = {}
    for graph, _ in subgraphs(infer_types(model).graph):
        types.update(value_types(graph))
    return emitter.values, types


def _declare_rule_results(model: onnx.ModelProto, values: dict[ir.Value, str]) -> None:
    """Declare the types in the module for results of operators that inference does not know."""
    present = {info.name for info in (*model.graph.value_info, *model.graph.output)}
    for value, name in values.items():
        op = owner(value)
        if op is None or name in present or not _is_ours(op.name.removeprefix("onnx.")):
            continue
        if isinstance(value.type, ir.RankedTensorType):
            model.graph.value_info.add(name=name).type.CopyFrom(type_proto(value.type))


def _is_ours(name: str) -> bool:
    """Return whether ONNX's inference does not know an operator."""
    return name in _OURS or has_user_rule(name)


def _emit_identity(emitter: Emitter, op: ir.Operation) -> None:
    """Emit a Barrier, which is unknown to ONNX's inference, as an Identity of the same type."""
    name = node_name(op) or "Barrier"
    results = emitter.results(op, name)
    emitter.node("Identity", [emitter.name(op.operands[0])], name=name, results=results)


def _apply(values: dict[ir.Value, str], types: Types) -> bool:
    table, changed = TypeTable(), False
    for value, name in values.items():
        if name not in types:
            continue
        new = merge_types(value.type, table.type(types[name]))
        if new != value.type:
            value.set_type(new)
            changed = True
    return changed


def merge_types(old: ir.Type, new: ir.Type) -> ir.Type:
    """Return ``new`` with the dimensions that only ``old`` specifies."""
    if isinstance(new, ir.UnrankedTensorType) and isinstance(old, ir.RankedTensorType):
        return old
    if not isinstance(old, ir.RankedTensorType) or not isinstance(new, ir.RankedTensorType):
        return new
    if old.rank != new.rank or new.has_static_shape:
        return new
    pairs = zip(sizes_of_type(old), sizes_of_type(new), strict=True)
    sizes = [b if a is None or isinstance(b, int) else a for a, b in pairs]
    return tensor_type(sizes, new.element_type)


def replace_value(old: ir.Value, new: ir.Value) -> None:
    """Replace ``old`` by ``new``, merging their shapes: a file may declare output shapes."""
    if not isinstance(new.owner, ir.Block):
        new.set_type(merge_types(old.type, new.type))
    old.replace_all_uses_with(new)


def update_signature(module: ir.Module) -> None:
    """Set the type of `@main` to the types of its arguments and returned values."""
    main = function(module)
    block = main.regions[0].blocks[0]
    returned = block.operations[len(block.operations) - 1].operation
    inputs = [value.type for value in block.arguments]
    kind = ir.FunctionType.get(inputs, [value.type for value in returned.operands], module.context)
    main.attributes["function_type"] = ir.TypeAttr.get(kind)
