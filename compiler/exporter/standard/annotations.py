"""Export of a plan as multi-device annotations on the original model (ONNX IR version 11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx

from tensoropt.compiler.exporter.standard.target import check_target
from tensoropt.compiler.importer.model_file import normalise
from tensoropt.compiler.protos.sharding_specs import IR_VERSION, spec_of
from tensoropt.compiler.protos.signatures import (
    is_transposed,
    signature,
    signature_of,
    swap_last_dims,
)
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.files import replacing
from tensoropt.dialects import onnx as onnx_ops
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys, mesh_of
from tensoropt.runtime.layout.layout import REPLICATE, Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["check_annotatable", "write_annotated"]

Sharded = tuple[str, Sequence[int | None], Layout]
"""Name, shape and layout of a tensor."""


def check_annotatable(model: Path, target: Path) -> None:
    """Raise UserError unless ``model`` can be written to ``target`` with annotations."""
    proto = onnx.load(model, load_external_data=False)
    check_target(proto, model, target, "--annotations")
    if proto.functions:
        raise UserError(
            f"--annotations {target}: expected a model without functions of its own, "
            f"got: {len(proto.functions)}"
        )


def write_annotated(module: ir.Module, model: Path, target: Path) -> tuple[int, int]:
    """Write ``model`` with the strategies of ``module``, which has passed the search.

    Weights are not changed or moved. Returns the number of annotated nodes, and of all nodes.
    Raises UserError for a node that reads partial sums of a computed tensor, which no spec can
    express.
    """
    proto = onnx.load(model, load_external_data=False)
    mesh = mesh_of(module.operation)
    del proto.configuration[:]
    proto.configuration.add(name=str(mesh), num_devices=mesh.size)
    proto.ir_version = max(proto.ir_version, IR_VERSION)
    count = _annotate(module, proto, mesh)
    with replacing(target) as path:
        onnx.save(proto, path)
    return count, len(proto.graph.node)


def _annotate(module: ir.Module, proto: onnx.ModelProto, mesh: Mesh) -> int:
    """Annotate the nodes that are in the module; return their number."""
    named = onnx.GraphProto()
    named.CopyFrom(proto.graph)
    normalise(named)
    ops, constants = _ops(module), _constants(module)
    count = 0
    for node, own in zip(proto.graph.node, named.node, strict=True):
        del node.device_configurations[:]
        op = ops.get(own.name)
        specs = [] if op is None else list(_specs(op, own, constants, mesh))
        if specs:
            node.device_configurations.add(configuration_id=str(mesh), sharding_spec=specs)
            count += 1
    return count


def _ops(module: ir.Module) -> dict[str, ir.Operation]:
    """Return the operations that have a strategy, by the names of their nodes."""
    block = onnx_ops.function(module).regions[0].blocks[0]
    return {
        onnx_ops.node_name(op.operation) or "": op.operation
        for op in block
        if keys.STRATEGY.on(op.operation.attributes)
    }


def _constants(module: ir.Module) -> set[ir.Value]:
    """Return the values that depend on no input; each rank has the parts of them that it needs."""
    main = onnx_ops.function(module)
    block = main.regions[0].blocks[0]
    own = onnx_ops.carried(main, "arg_attrs")
    found = set[ir.Value]()
    pairs = zip(block.arguments, own, strict=True)
    found.update(argument for argument, attributes in pairs if keys.PARAM.on(attributes))
    for op in block:
        if all(v in found for v in op.operation.operands) and not onnx_ops.is_random(op.operation):
            found.update(op.operation.results)
    return found


def _specs(
    op: ir.Operation, node: onnx.NodeProto, constants: set[ir.Value], mesh: Mesh
) -> Iterator[onnx.ShardingSpecProto]:
    """Yield a spec for each tensor of a node that passes have not changed."""
    seen: dict[str, Layout] = {}
    shapes: dict[str, Sequence[int | None]] = {}
    for name, shape, layout in _sharded(op, node, constants):
        shapes[name] = shape
        if seen.setdefault(name, layout) != layout:
            raise UserError(
                f"node '{node.name}': reads '{name}' in two layouts, "
                "which annotations cannot say, expected one"
            )
        if layout.padded_dims(shape, mesh):
            raise UserError(
                f"node '{node.name}': cuts '{name}' into parts with padding or copies, "
                "which annotations cannot say"
            )
        if any(len(set(placement.blocks)) > 1 for placement in layout.placements):
            raise UserError(
                f"node '{node.name}': cuts '{name}' in blocks of unequal sizes, "
                "which annotations cannot say"
            )
    for name, layout in seen.items():
        yield spec_of(name, shapes[name], layout, mesh)


def _sharded(op: ir.Operation, node: onnx.NodeProto, constants: set[ir.Value]) -> Iterator[Sharded]:
    """Yield the operands that passes have not replaced, and the results that are not partial.

    The layout of an operand that a pass transposed is that of the node's operand. A partial result
    follows from the operands, which are split along a reduction dimension.
    """
    operands, results = keys.STRATEGY.of(op.attributes)
    split = {a for other in operands for a, own in enumerate(other.placements) if own.is_split}
    if not len(op.regions):
        for number, (name, value, layout) in enumerate(
            zip(node.input, op.operands, operands, strict=False)
        ):
            turn = is_transposed(signature_of(op), signature(node), number)
            if not name or onnx_ops.is_no_value(value) or turn is None:
                continue
            partial = [axis for axis, own in enumerate(layout.placements) if own.is_partial]
            # A partial constant, such as a bias, is implied by operands split along the same axes.
            if partial and not (value in constants and split.issuperset(partial)):
                raise UserError(
                    f"node '{node.name}': reads partial sums of '{name}', which annotations "
                    "cannot say, expected --forbid 'node:*=partial'"
                )
            shape, stored = _shape(value), layout.replace(partial, REPLICATE)
            if turn:
                shape, stored = (*shape[:-2], *shape[:-3:-1]), swap_last_dims(stored, len(shape))
            yield name, shape, stored
    is_same = is_transposed(signature_of(op), signature(node), 0) is not None and not len(
        op.regions
    )
    for name, value, layout in zip(node.output, op.results, results, strict=False):
        if name and layout.has_partial and not is_same:
            raise UserError(
                f"node '{node.name}': makes partial sums as another operator, {op.name}, "
                "which annotations cannot say"
            )
        if name and not layout.has_partial:
            yield name, _shape(value), layout


def _shape(value: ir.Value) -> tuple[int | None, ...]:
    kind = ir.RankedTensorType(value.type)
    return tuple(
        None if kind.is_dynamic_dim(dim) else kind.get_dim_size(dim) for dim in range(kind.rank)
    )
