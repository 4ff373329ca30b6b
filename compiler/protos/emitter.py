"""Export of MLIR to ONNX: walks `func.func @main` and writes one node per operation.

Everything that leaves the module is emitted here: whole models, per-rank graphs, and the skeletons
used for shape inference and constant folding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from tensoropt.compiler.protos.attributes import attribute_proto, tensor_proto
from tensoropt.compiler.protos.names import Namer
from tensoropt.compiler.protos.types import static_shape, type_proto
from tensoropt.compiler.protos.versions import MAX_IR_VERSION
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.elements import dense_to_array
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import (
    CONSTANT,
    NO_VALUE,
    UNBOUNDED,
    attributes,
    function,
    is_no_value,
    is_onnx,
    made_by,
    node_name,
    opsets,
    region_names,
    schema,
    signature_attributes,
    split_name,
)
from tensoropt.dialects.topt import keys
from tensoropt.runtime.support.ordering import ORDERED

__all__ = ["MIN_IR_VERSION", "Argument", "Emitter", "Lowering", "Store", "arguments", "dims_of"]

_PAIR = 2
MIN_IR_VERSION = 8  # released with opset 15; since 4, initializers need not be inputs

Lowering = Callable[["Emitter", ir.Operation], None]
Store = Callable[["Argument"], onnx.TensorProto | None]


class Argument:
    """An argument of `@main`: its value, ONNX name, and its attributes."""

    def __init__(self, value: ir.Value, attributes: ir.DictAttr, index: int) -> None:
        self.value = value
        self.attributes = attributes
        self.name = keys.NAME.get(attributes, f"arg{index}")
        self.is_parameter = keys.PARAM.on(attributes)


def arguments(main: ir.Operation) -> list[Argument]:
    """Return the arguments of `@main` in order."""
    values = main.regions[0].blocks[0].arguments
    attributes = signature_attributes(main, "arg_attrs", len(values))
    return [
        Argument(value, own, i)
        for i, (value, own) in enumerate(zip(values, attributes, strict=True))
    ]


def dims_of(attributes: ir.DictAttr) -> list[str] | None:
    """Return the names of the symbolic dimensions of an argument or result."""
    return keys.DIMS.get(attributes)


class Emitter:
    """Builds one ModelProto. ``lowerings`` emit operations that are not ONNX's."""

    def __init__(self, module: ir.Module, lowerings: Mapping[str, Lowering] | None = None) -> None:
        self.module = module
        self.lowerings = lowerings or {}
        self.main = self.graph = onnx.GraphProto(name="main")  # graph: receives new nodes
        self.opsets = opsets(module)
        self.values: dict[ir.Value, str] = {}
        self.stored: dict[ir.Value, onnx.TensorProto] = {}  # parameters
        self.value_names = Namer([""])
        self.node_names = Namer()
        self.shared: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def function(self, store: Store) -> None:
        """Emit `@main`; ``store`` returns a parameter's initializer, or ``None`` for an input."""
        main = function(self.module)
        block = main.regions[0].blocks[0]
        given = arguments(main)
        returned = list(block.operations[len(block.operations) - 1].operation.operands)
        attributes = signature_attributes(main, "res_attrs", len(returned))
        ends = [keys.NAME.get(own, f"result{i}") for i, own in enumerate(attributes)]
        self._reserve(given, list(zip(returned, ends, strict=True)))
        for argument in given:
            self._argument(argument, store)
        copies = self._name_results(returned, ends)
        for op in list(block)[:-1]:
            self.operation(op.operation)
        for value, name in copies:
            self.node("Identity", [self.name(value)], results=[name])
        for value, name, own in zip(returned, ends, attributes, strict=True):
            info = self.graph.output.add(name=name)
            info.type.CopyFrom(type_proto(value.type, dims_of(own)))

    def describe_values(self) -> None:
        """Declare the type of every value inside `@main`, so that readers need not infer it."""
        known = {v.name for v in self.graph.output} | {v.name for v in self.graph.initializer}
        for op in function(self.module).regions[0].blocks[0]:
            for value in op.operation.results:
                name = self.values.get(value)
                if name and name not in known and isinstance(value.type, ir.RankedTensorType):
                    self.graph.value_info.add(name=name).type.CopyFrom(type_proto(value.type))

    def _reserve(self, given: Sequence[Argument], ends: Sequence[tuple[ir.Value, str]]) -> None:
        """Reserve the names of arguments and results before naming anything else."""
        for argument in given:
            self.values[argument.value] = self.value_names.unique(argument.name)
            if self.values[argument.value] != argument.name:
                raise UserError(f"{self._where()}: two arguments are named '{argument.name}'")
        for value, name in ends:
            if self.values.get(value) != name and self.value_names.unique(name) != name:
                raise UserError(f"{self._where()}: result '{name}' has the name of another value")

    def _where(self) -> str:
        attributes = self.module.operation.attributes
        return keys.MODEL.get(attributes, "module")

    def _argument(self, argument: Argument, store: Store) -> None:
        tensor = store(argument) if argument.is_parameter else None
        if tensor is not None:
            self.graph.initializer.append(tensor)
            self.stored[argument.value] = self.graph.initializer[-1]
            return
        info = self.graph.input.add(name=argument.name)
        info.type.CopyFrom(type_proto(argument.value.type, dims_of(argument.attributes)))

    def _name_results(
        self, returned: Sequence[ir.Value], ends: Sequence[str]
    ) -> list[tuple[ir.Value, str]]:
        """Name the returned values; return the values that need a copy to have their name."""
        copies = []
        for value, name in zip(returned, ends, strict=True):
            if not isinstance(value.owner, ir.Block) and value not in self.values:
                self.values[value] = name
            elif self.values.get(value) != name:
                copies.append((value, name))
        return copies

    def operation(self, op: ir.Operation) -> None:
        """Emit one operation."""
        if op.name in self.lowerings:
            self.lowerings[op.name](self, op)
        elif op.name == CONSTANT:
            self.literal(op, dense_to_array(op.attributes["value"]))
        elif op.name == NO_VALUE:
            self.values[op.results[0]] = ""
        elif is_onnx(op):
            self.plain(op)
        else:
            raise UserError(f"{self._where()}: '{op.name}' op has no ONNX form at this stage")

    def reshape(self, op: ir.Operation) -> None:
        """Emit a Reshape; a parameter with no other reader is stored in the new shape instead."""
        given, made = op.operands[0], op.results[0]
        shape = static_shape(made.type)
        is_only_use = sum(1 for _ in given.uses) == 1 and made not in self.values
        if given not in self.stored or not is_only_use or shape is None:
            self.plain(op)
            return
        tensor = self.stored[given]
        del tensor.dims[:]
        tensor.dims.extend(shape)
        self.values[made] = tensor.name

    def literal(self, op: ir.Operation, array: npt.NDArray[np.generic]) -> None:
        """Emit an operation with ``array`` as its single result."""
        value = op.results[0]
        if value in self.values:  # a result of @main, which already has its name
            self.main.initializer.append(tensor_proto(array, self.values[value]))
        else:
            self.values[value] = self.constant(node_name(op) or "constant", array)

    def plain(self, op: ir.Operation) -> None:
        """Emit an ONNX operation as its node."""
        domain, op_type = split_name(op.name)
        protos = [attribute_proto(name, op.attributes[name]) for name in attributes(op)]
        name = self.node_names.unique(node_name(op) or f"{op_type}_{len(self.graph.node)}")
        for attribute, region in zip(region_names(op), op.regions, strict=True):
            inner = onnx.AttributeProto(name=attribute, type=onnx.AttributeProto.GRAPH)
            inner.g.CopyFrom(self._region(region, f"{name}.{attribute}"))
            protos.append(inner)
        found = schema(domain, op_type, self.opsets.get(domain, 1))
        is_variadic = found is not None and found.max_outputs == UNBOUNDED  # as Split is
        op_type = "Add" if _adds_gemm(op) else op_type
        node = self.graph.node.add(op_type=op_type, domain=domain, name=name)
        node.input.extend(_trim([self.name(value) for value in op.operands]))
        results = self.results(op, name)
        node.output.extend(results if is_variadic else _trim(results))
        node.attribute.extend(sorted(protos, key=lambda attribute: attribute.name))

    def results(self, op: ir.Operation, name: str) -> list[str]:
        """Return the names of the results of ``op``; unnamed results are named after the node."""
        many = len(op.results) > 1
        for index, value in enumerate(op.results):
            if is_no_value(value):
                self.values[value] = ""
            elif value not in self.values:
                wanted = f"{name}_out{index if many else ''}"
                self.values[value] = self.value_names.unique(wanted)
        return [self.values[value] for value in op.results]

    def _region(self, region: ir.Region, name: str) -> onnx.GraphProto:
        """Emit a region as a graph that can read the values around it."""
        outer, self.graph = self.graph, onnx.GraphProto(name=name)
        try:
            self._body(region.blocks[0], name)
            return self.graph
        finally:
            self.graph = outer

    def _body(self, block: ir.Block, name: str) -> None:
        for index, argument in enumerate(block.arguments):
            self.values[argument] = inner = self.value_names.unique(f"{name}_in{index}")
            self.graph.input.add(name=inner).type.CopyFrom(type_proto(argument.type))
        operations = list(block)
        for op in operations[:-1]:
            self.operation(op.operation)
        own = {name for node in self.graph.node for name in node.output}
        for value in operations[-1].operation.operands:
            inner = self.name(value)
            if inner not in own:  # a graph must compute each of its outputs, once
                inner = self.node("Identity", [inner], name=f"{name}.Identity")[0]
            own.discard(inner)
            self.graph.output.add(name=inner).type.CopyFrom(type_proto(value.type))

    def name(self, value: ir.Value) -> str:
        """Return the ONNX name of ``value``, which must have been emitted."""
        return self.values[value]

    def constant(self, name: str, array: npt.NDArray[np.generic]) -> str:
        """Return the name of an initializer with value ``array``; equal arrays share one."""
        if array.dtype.hasobject:
            return self._initializer(name, array)
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self.shared:
            self.shared[key] = self._initializer(name, array)
        return self.shared[key]

    def _initializer(self, name: str, array: npt.NDArray[np.generic]) -> str:
        unique = self.value_names.unique(name)
        self.main.initializer.append(tensor_proto(array, unique))
        return unique

    def node(
        self,
        op_type: str,
        operands: Sequence[str],
        *,
        name: str | None = None,
        results: Sequence[str] | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> list[str]:
        """Add a node without an operation in the IR; return the names of its results."""
        unique = self.node_names.unique(name or f"{op_type}_{len(self.graph.node)}")
        results = results or [self.value_names.unique(f"{unique}_out")]
        made = onnx.helper.make_node(
            op_type, operands, results, name=unique, domain=domain, **attributes
        )
        self.graph.node.append(made)
        return list(results)

    def model(self) -> onnx.ModelProto:
        """Return the model with the graph emitted so far."""
        attributes = self.module.operation.attributes
        version = keys.IR_VERSION.get(attributes, MAX_IR_VERSION)
        made = onnx.ModelProto(
            ir_version=min(max(version, MIN_IR_VERSION), MAX_IR_VERSION), producer_name="tensoropt"
        )
        made.graph.CopyFrom(self.graph)
        for domain, number in sorted(self.opsets.items()):
            made.opset_import.add(domain=domain, version=number)
        if keys.ORDERED.on(attributes):
            made.metadata_props.add(key=ORDERED, value="1")
        return made


def _adds_gemm(op: ir.Operation) -> bool:
    """Return whether ``op`` is a Sum of two operands, at least one from a Gemm.

    ONNX Runtime fuses the two operators, and then refuses the graph if the Gemm reads the third or
    a later result of a Split. It does not fuse Add.
    """
    if op.name != "onnx.Sum" or len(op.operands) != _PAIR:
        return False
    return any(made_by(value, "Gemm") is not None for value in op.operands)


def _trim(names: list[str]) -> list[str]:
    """Remove omitted names from the end, where ONNX makes them optional."""
    while names and not names[-1]:
        names.pop()
    return names
