"""`partition`: lower global shapes and reshards to the program of one rank."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tensoropt.compiler.layout.layouts import describe_misfit
from tensoropt.compiler.layout.rule import Rule, Strategy
from tensoropt.compiler.reshard.lowering import lower_step
from tensoropt.compiler.reshard.replicas import SumOverReplicas
from tensoropt.compiler.reshard.resharder import Resharder
from tensoropt.compiler.shapes.refine import merge_types
from tensoropt.compiler.sharding.ops.randomness import give_seed
from tensoropt.compiler.sharding.rule.describe import describe, tensor_info
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.compiler.sharding.rule.rule_reader import RuleReader
from tensoropt.compiler.sharding.rule.strategies import strategy_of_layouts
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects import onnx
from tensoropt.dialects.build import Build, tensor_type
from tensoropt.dialects.collectives import collective, fill_padding
from tensoropt.dialects.mlir import func, ir
from tensoropt.dialects.topt import RESHARD, keys, layout_of, mesh_of
from tensoropt.passes.base import Pass
from tensoropt.passes.node_times import NodeTimes
from tensoropt.passes.reshards import take_part
from tensoropt.passes.strategies import device_of, resharder_of, signature_layouts, strategy_of
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["PartitionPass"]


@dataclass(frozen=True)
class PartitionPass(Pass):
    """Gives every tensor its local shape, and lowers reshards to collectives of `shard`.

    The result is one program for all ranks; ranks differ only in `topt.axis_constant`,
    `shard.all_slice` and their slices of the parameters. Each reshard takes the cheapest path on
    the device description of the search. Refuses a strategy that the rule of the op does not offer,
    and operands in another layout than the strategy reads. Linear in the operations.
    """

    name: ClassVar[str] = "partition"
    summary: ClassVar[str] = "Lower layouts to local shapes and reshards to collectives."
    reaches: ClassVar[str | None] = "partition"

    def run(self, module: ir.Module) -> None:
        with module.context, ir.Location.unknown():
            _Partition(self, module).run()


class _Partition:
    def __init__(self, owner: PartitionPass, module: ir.Module) -> None:
        self.owner = owner
        self.old = onnx.function(module)
        self.versions = onnx.opsets(module)
        self.mesh: Mesh = mesh_of(module.operation)
        self.resharder = resharder_of(module, self.old)
        self.rules = RuleReader()
        self.times = NodeTimes(self.old, self.resharder)
        self.sums = _sums(module, self.resharder)
        self.local: dict[ir.Value, ir.Value] = {}
        self.layouts: dict[ir.Value, Layout] = {}

    def run(self) -> None:
        block = self.old.regions[0].blocks[0]
        new = self._signature()
        self.local.update(zip(block.arguments, new.entry_block.arguments, strict=True))
        layouts = signature_layouts(self.old, "arg_attrs")
        self.layouts.update(zip(block.arguments, layouts, strict=True))
        update: int | None = None
        with ir.InsertionPoint(new.entry_block):
            for op in block:
                if update is None and onnx.phase(op.operation) == "update":
                    update = len(new.entry_block.operations)
                self._op(op.operation)
        if update is not None:
            for number, op in enumerate(new.entry_block):
                # Lowered reshards have no phase yet.
                if number >= update and op.operation.name != "func.return":
                    keys.PHASE.set(op.operation.attributes, "update")
        _refine_results(new)
        self.old.erase()

    def _signature(self) -> func.FuncOp:
        """Return an empty function with local types, next to the old function."""
        kind = onnx.signature(self.old)
        inputs = self._local_types(kind.inputs, "arg_attrs")
        results = self._local_types(kind.results, "res_attrs")
        with ir.InsertionPoint(self.old):
            new = func.FuncOp("main", ir.FunctionType.get(inputs, results), loc=self.old.location)
        for name, attribute in self.old.attributes.items():
            if name != "function_type":
                new.attributes[name] = attribute
        for key in ("arg_attrs", "res_attrs"):
            if key in new.attributes:
                lowered = [self._lowered_one(own) for own in onnx.carried(self.old, key)]
                new.attributes[key] = ir.ArrayAttr.get(lowered)
        new.add_entry_block([a.location for a in self.old.regions[0].blocks[0].arguments])
        return new

    def _lowered_one(self, attributes: ir.DictAttr) -> ir.DictAttr:
        kept = {item.name: item.attr for item in attributes if item.name not in keys.SEARCHED}
        if keys.DIMS.on(attributes) and keys.LAYOUT.on(attributes):
            layout = keys.LAYOUT.of(attributes)
            pieces = (layout.pieces(dim, self.mesh) for dim in itertools.count())
            names = zip(keys.DIMS.of(attributes), pieces, strict=False)
            # ONNX Runtime assumes that dimensions with one name have one size.
            kept |= keys.DIMS.item([f"{n}/{p}" if n and p > 1 else n for n, p in names])
        return ir.DictAttr.get(kept)

    def _local_types(self, types: Sequence[ir.Type], key: str) -> list[ir.Type]:
        layouts = signature_layouts(self.old, key)
        for number, (type_, layout) in enumerate(zip(types, layouts, strict=True)):
            info = tensor_info(type_)
            misfit = describe_misfit(layout, info.sizes, self.mesh) if info is not None else None
            if misfit is not None:
                side = "argument" if key == "arg_attrs" else "result"
                where = f"layout of {side} {number} does not fit {type_} on mesh {self.mesh}"
                raise self.owner.fail(self.old, f"{where}, {misfit}")
        return [self._local_type(t, layout) for t, layout in zip(types, layouts, strict=True)]

    def _op(self, op: ir.Operation) -> None:
        if op.name == RESHARD:
            self._reshard(op)
        elif op.name == "func.return":
            self._check_read(op, signature_layouts(self.old, "res_attrs"))
            func.ReturnOp([self.local[value] for value in op.operands], loc=op.location)
        elif op.name == onnx.NO_VALUE:
            self.local[op.results[0]] = _copied(op).results[0]
        elif onnx.is_pass_through(op):
            operands, results = strategy_of(op)
            self._check_read(op, operands)
            self.local[op.results[0]] = self.local[op.operands[0]]
            self.layouts[op.results[0]] = results[0]
        else:
            self._onnx(op)

    def _reshard(self, op: ir.Operation) -> None:
        source, target = layout_of(op.attributes["src"]), layout_of(op.attributes["dst"])
        info = tensor_info(op.operands[0].type)
        if info is None:
            raise self.owner.fail(op, f"expected a ranked tensor, got: {op.operands[0].type}")
        self._check_read(op, [source])
        self.layouts[op.results[0]] = target
        read = self.local[op.operands[0]]
        value = self._resharded(op, read, info, source, target)
        _name_steps(onnx.node_name(op), [value], [read])
        _take_chunk(op, [value], [read])
        self.local[op.results[0]] = value

    def _resharded(
        self, op: ir.Operation, value: ir.Value, info: TensorInfo, source: Layout, target: Layout
    ) -> ir.Value:
        """Return a rank's part of a tensor in layout ``target``; ``value`` is the part before."""
        for step in self.resharder.path(info.sizes, info.item_bytes, source, target).steps:
            made = lower_step(value, info.sizes, step, self.mesh, op.location, self.versions[""])
            self.times.note_step(step, [value, *made], info)
            value = made[-1]
        return value

    def _summed_over_replicas(self, op: ir.Operation, value: ir.Value, layout: Layout) -> ir.Value:
        """Return the sum of a gradient over the ranks with one place in all replicas.

        Ranks of a mesh that have the same part may add up a slice of it each.
        """
        info = tensor_info(op.results[0].type)
        assert info is not None, "gradients are ranked tensors"
        assert self.sums is not None, "only replicas add gradients up"
        slices, settings = self.sums.layout(info, layout), {"reduction": "sum"}
        part = self._resharded(op, value, info, layout, slices)
        total = collective("all_reduce", part, (), settings, op.location)
        keys.STAGES.set(ir.OpResult(total).owner.attributes, True)
        return self._resharded(op, total, info, slices, layout)

    def _onnx(self, op: ir.Operation) -> None:
        info = describe(op, self.versions)
        rule = self._rule(op, info)
        strategy = self._strategy(op, rule)
        self._check_read(op, strategy.operands)
        read = [self.local[value] for value in op.operands]
        operands = list(read)
        types = [
            self._local_type(result.type, layout)
            for result, layout in zip(op.results, strategy.results, strict=True)
        ]
        with op.location:
            if len(op.regions):
                results = self._with_regions(op, operands)
            else:
                local = LocalOp(op, info, rule, strategy, self.mesh, operands, types)
                if keys.GRADIENT_OF.on(op.attributes):
                    operands[-1] = self._finite(op, operands[-1], strategy.operands[-1])
                results = [self._sized(*pair) for pair in zip(local.build(), types, strict=True)]
                _name_op(onnx.node_name(op), results, operands)
            _take_chunk(op, results, read)
            self.times.note_fills(read, operands)
            self.times.note(op, (info, rule, strategy), results, operands)
            if self.sums is not None and _takes_gradient(op):
                results = [self._summed_over_replicas(op, results[0], strategy.results[0])]
        self.local.update(zip(op.results, results, strict=True))
        self.layouts.update(zip(op.results, strategy.results, strict=True))

    def _finite(self, op: ir.Operation, x: ir.Value, layout: Layout) -> ir.Value:
        """Return a gradient that ``op`` passes to the update, with its padding set to zero.

        The check for finite gradients reads all elements of every rank.
        """
        info = tensor_info(op.results[0].type)
        shape = () if info is None else info.sizes
        make = Build(op.location, self.versions[""])
        for dim in layout.padded_dims(shape, self.mesh):
            size, axes = shape[dim], layout.axes_splitting(dim)
            assert isinstance(size, int), f"{op.name}: padding of a symbolic dimension"
            x = fill_padding(make, x, dim, size, 0.0, axes, self.mesh)
        return x

    def _check_read(self, op: ir.Operation, wanted: Sequence[Layout]) -> None:
        """Refuse an op that reads a value in another layout than the value has."""
        for number, (value, layout) in enumerate(zip(onnx.read_by(op), wanted, strict=True)):
            if number and onnx.is_barrier(op):
                continue  # nothing reads the elements
            if self.layouts.get(value, layout) != layout:
                raise self.owner.fail(
                    op,
                    f"reads operand {number} in another layout, expected {self.layouts[value]}, "
                    f"got: {layout}",
                )

    def _sized(self, value: ir.Value, declared: ir.Type) -> ir.Value:
        """Return ``value`` with the additional sizes of ``declared``.

        The sizes of an op that was expanded follow only from its operands.
        """
        known = merge_types(declared, value.type)
        if known == value.type:
            return value
        if _shape(known) == _shape(value.type):  # only the ranges of open sizes are new
            value.set_type(known)
            return value
        return Build(value.location, self.versions[""]).onnx("Identity", [value], known)

    def _rule(self, op: ir.Operation, info: OpInfo) -> Rule:
        try:
            return self.rules.read(op, info)
        except UserError as error:
            raise self.owner.fail(op, str(error)) from None

    def _strategy(self, op: ir.Operation, rule: Rule) -> Strategy:
        """Return the strategy with the layouts of ``op``, and its axis roles."""
        operands, results = strategy_of(op)
        own = len(op.operands)  # captured values follow, which must be replicated
        found = strategy_of_layouts(rule, self.mesh, operands[:own], results)
        if found is None or any(not layout.is_replicated for layout in operands[own:]):
            text = ", ".join(map(str, (*operands, "->", *results)))
            raise self.owner.fail(
                op, f"has a strategy its sharding rule does not offer on mesh {self.mesh}: {text}"
            )
        return Strategy(found.roles, tuple(operands), found.results)

    def _with_regions(self, op: ir.Operation, operands: list[ir.Value]) -> list[ir.Value]:
        """Copy a control-flow op unchanged: everything in it is replicated, so shapes are global.

        Random operators in it get a seed, so that all ranks draw the same numbers.
        """
        copy = _copied(op)
        for number, value in enumerate(operands):
            copy.operands[number] = value
        for inner in onnx.walk(copy):
            give_seed(inner, self.versions.get("", 1))
            for number, value in enumerate(inner.operands):
                if value in self.local:
                    inner.operands[number] = self.local[value]
        return list(copy.results)

    def _local_type(self, type_: ir.Type, layout: Layout) -> ir.Type:
        info = tensor_info(type_)
        if info is None:
            return type_
        return tensor_type(
            layout.local_shape(info.sizes, self.mesh), ir.RankedTensorType(type_).element_type
        )


def _sums(module: ir.Module, resharder: Resharder) -> SumOverReplicas | None:
    """Return the sums over the replicas of a module, ``None`` if it has no replicas."""
    if not keys.REPLICAS.on(module.operation.attributes):
        return None
    replicas = len(keys.REPLICAS.of(module.operation.attributes))
    return SumOverReplicas(replicas, resharder, device_of(module).between_groups)


def _takes_gradient(op: ir.Operation) -> bool:
    """Return whether ``op`` is the one in the update that reads a gradient, to reduce it."""
    if onnx.phase(op) != "update" or not len(op.operands):
        return False
    made = onnx.owner(op.operands[0])
    while made is not None and made.name == RESHARD:
        made = onnx.owner(made.operands[0])
    return made is not None and keys.GRADIENT_OF.on(made.attributes)


def _name_op(name: str | None, results: Sequence[ir.Value], operands: Sequence[ir.Value]) -> None:
    """Give the name of an op to the makers of its results only, and step names to the rest.

    So a value of the model can be found in the graph of a rank.
    """
    if name is None:
        return
    made = (_maker(value, name) for value in results if value not in operands)
    ends = [end for end in made if end is not None]
    _name_steps(name, [value for end in ends for value in end.operands], (*operands, *results))


def _name_steps(name: str | None, values: Sequence[ir.Value], others: Sequence[ir.Value]) -> None:
    """Name the makers of ``values``, and the ops that these read, as steps of an op: ``fc.Mul``.

    Stops at ``others``, which are made elsewhere.
    """
    seen, left = set(others), list(values)
    while left and name is not None:
        value = left.pop()
        step = None if value in seen else _maker(value, name)
        seen.add(value)
        if step is None:
            continue
        left.extend(step.operands)
        if onnx.is_onnx(step) and step.name != onnx.CONSTANT:
            named: Any = step  # the stubs lack the setter
            named.location = ir.Location.name(f"{name}.{onnx.split_name(step.name)[1]}")


def _take_chunk(op: ir.Operation, values: Sequence[ir.Value], given: Sequence[ir.Value]) -> None:
    """Give the phase and the chunk of ``op``, if it has one, to the makers of ``values``.

    So too to the makers of all that these read, except ``given``.
    """
    if not keys.CHUNK.on(op.attributes):
        return
    seen, left = set(given), list(values)
    while left:
        value = left.pop()
        made = None if value in seen else onnx.owner(value)
        seen.add(value)
        if made is not None:
            take_part(made, op)
            left.extend(made.operands)


def _maker(value: ir.Value, name: str) -> ir.Operation | None:
    """Return the op that makes ``value``, or ``None`` if its name is not ``name``."""
    if isinstance(value.owner, ir.Block):
        return None
    made: ir.Operation = value.owner.operation
    return made if onnx.node_name(made) == name else None


def _copied(op: ir.Operation) -> ir.Operation:
    """Return a copy of ``op`` without the attributes of the search."""
    copy = op.clone().operation
    for name in keys.SEARCHED.intersection(copy.attributes):
        del copy.attributes[name]
    return copy


def _refine_results(main: func.FuncOp) -> None:
    """Refine the result types of the function to the types of the values it returns.

    An op that was expanded has more known sizes than its declared type.
    """
    kind, block = main.type, main.entry_block
    returned = block.operations[len(block.operations) - 1].operation.operands
    results = []
    for declared, value in zip(kind.results, returned, strict=True):
        is_open = isinstance(declared, ir.RankedTensorType) and not declared.has_static_shape
        refines = is_open and merge_types(value.type, declared) == value.type
        results.append(value.type if refines else declared)
    refined = ir.FunctionType.get(kind.inputs, results)
    main.attributes["function_type"] = ir.TypeAttr.get(refined)


def _shape(kind: ir.Type) -> list[int] | None:
    return list(kind.shape) if isinstance(kind, ir.RankedTensorType) else None
