"""Shape inference over a module: what has become known of shapes reaches every value."""

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
from tensoropt.dialects.onnx import BARRIER, function, node_name, op_name, owner
from tensoropt.dialects.sizes import sizes_of_type, tensor_type

__all__ = ["inferred_dims", "merged_type", "refine_types", "replace_value", "update_signature"]


def refine_types(module: ir.Module) -> bool:
    """Give the values of an unpartitioned ``module`` their inferred types; say whether any changed.

    A dimension that is known stays known. The shape of a `Reshape` becomes a literal where symbolic
    dimensions tell it. Raises :class:`UserError` where types do not fit.
    """
    with module.context, ir.Location.unknown():
        names, types = _inferred(module)
        changed = _apply(names, types)
        changed |= write_reshapes(module, {v: dims_of(types.get(n)) for v, n in names.items()})
        update_signature(module)
    return changed


def inferred_dims(module: ir.Module) -> dict[ir.Value, Dims]:
    """Return the sizes of values, and the names that inference gives those that are open."""
    with module.context, ir.Location.unknown():
        names, types = _inferred(module)
    every = {value: dims_of(types.get(name)) for value, name in names.items()}
    return {value: dims for value, dims in every.items() if dims is not None}


def _inferred(module: ir.Module) -> tuple[dict[ir.Value, str], Types]:
    """Return the name of each value, and the types by these names."""
    emitter = Emitter(module, {op_name("", BARRIER): _as_identity})
    emitter.function(lambda argument: None)
    model = emitter.model()
    _declare_given(model, emitter.values)
    types: Types = {}
    for graph, _ in subgraphs(infer_types(model).graph):
        types.update(value_types(graph))
    return emitter.values, types


def _declare_given(model: onnx.ModelProto, values: dict[ir.Value, str]) -> None:
    """Declare what operators make whose types the model said, as nothing else knows them."""
    there = {info.name for info in (*model.graph.value_info, *model.graph.output)}
    for value, name in values.items():
        op = owner(value)
        if op is None or not has_user_rule(op.name.removeprefix("onnx.")) or name in there:
            continue
        if isinstance(value.type, ir.RankedTensorType):
            model.graph.value_info.add(name=name).type.CopyFrom(type_proto(value.type))


def _as_identity(emitter: Emitter, op: ir.Operation) -> None:
    """Emit a Barrier, which ONNX's inference does not know, as what it is to types."""
    name = node_name(op) or "Barrier"
    results = emitter.results(op, name)
    emitter.node("Identity", [emitter.name(op.operands[0])], name=name, results=results)


def _apply(values: dict[ir.Value, str], types: Types) -> bool:
    table, changed = TypeTable(), False
    for value, name in values.items():
        if name not in types:
            continue
        new = merged_type(value.type, table.type(types[name]))
        if new != value.type:
            value.set_type(new)
            changed = True
    return changed


def merged_type(old: ir.Type, new: ir.Type) -> ir.Type:
    """Return ``new`` with the dimensions that only ``old`` knows."""
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
    """Use ``new`` in place of ``old``, an output perhaps, with a shape that the file declares."""
    if not isinstance(new.owner, ir.Block):
        new.set_type(merged_type(old.type, new.type))
    old.replace_all_uses_with(new)


def update_signature(module: ir.Module) -> None:
    """Make the type of `@main` that of its arguments and of what it returns."""
    main = function(module)
    block = main.regions[0].blocks[0]
    returned = block.operations[len(block.operations) - 1].operation
    inputs = [value.type for value in block.arguments]
    kind = ir.FunctionType.get(inputs, [value.type for value in returned.operands], module.context)
    main.attributes["function_type"] = ir.TypeAttr.get(kind)
