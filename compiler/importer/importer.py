"""Import of ONNX models to MLIR: one `onnx.*` operation per node, every weight an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import onnx

from tensoropt.compiler.importer.model_file import (
    Model,
    Parameter,
    constant_tensor,
    load_model,
)
from tensoropt.compiler.importer.storage import Folder, check_stored, locate
from tensoropt.compiler.importer.ties import Ties, find_ties
from tensoropt.compiler.importer.training_conversion import check_static
from tensoropt.compiler.importer.triangles import triangle_of
from tensoropt.compiler.protos.attributes import AttributeTable
from tensoropt.compiler.protos.graph_checks import node_error
from tensoropt.compiler.protos.names import Namer
from tensoropt.compiler.protos.subgraphs import Scope, names_read
from tensoropt.compiler.protos.types import TypeTable, dim_names
from tensoropt.compiler.shapes.inference import infer_types, name_outputs, value_types
from tensoropt.compiler.sharding.rule.slicing import normalize_ends
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.build import ints_attr
from tensoropt.dialects.elements import Array, to_dense
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import CONSTANT, NO_VALUE, YIELD, constant_value, op_name
from tensoropt.dialects.topt import keys
from tensoropt.runtime.plan.dims import Sizes, sizes_text

__all__ = ["import_model"]

_ENDS, _STEPS, _WITH_STEPS = 2, 4, 5  # operands of Slice, and their number

Values = dict[str, ir.Value]
T = TypeVar("T")


def import_model(
    path: str | PathLike[str], *, dims: Mapping[str, Sizes] | None = None, training: bool = False
) -> ir.Module:
    """Return the model in the file ``path`` as a module in the current MLIR context.

    Weights are not read, except those that may be transposed copies of others, which become a
    `Transpose`, and in training square ones that may be causal masks. Missing files of external
    data are recorded in the module. ``dims`` gives sizes to symbolic dimensions, or ranges; both
    are recorded too. With ``training`` the model is converted (see :func:`load_model`), and a
    symbolic dimension is an error. Raises :class:`UserError` for anything that is no valid model.
    """
    model = load_model(Path(path), dims, training=training)
    if training:
        check_static(model.path, model.graph)
    folder = Folder(model.path)
    for parameter in model.parameters.values():
        check_stored(folder, parameter.tensor)
    try:
        inferred = infer_types(model.proto)
    except UserError as error:
        raise UserError(f"{model.path}: {error}") from None
    name_outputs(inferred.graph, value_types(model.graph))
    model.proto = inferred
    with ir.Location.unknown():
        places = {"masks": folder} if training else {"folder": folder}
        module = _Importer(model, **places).module()
        if folder.missing:
            keys.MISSING.set(module.operation.attributes, folder.missing)
        texts = {name: sizes_text(sizes) for name, sizes in (dims or {}).items()}
        for key, kind in ((keys.RANGES, range), (keys.NAMED_SIZES, int)):
            own = {name: texts[name] for name in texts if isinstance((dims or {})[name], kind)}
            if own:
                key.set(module.operation.attributes, own)
    return module


class _Importer:
    """Builds the module of one model.

    ``folder`` is searched for copies of weights, ``masks`` for causal masks among them.
    """

    def __init__(
        self, model: Model, folder: Folder | None = None, masks: Folder | None = None
    ) -> None:
        self.model = model
        self.folder, self.masks = folder, masks
        self.types = TypeTable()
        self.attributes = AttributeTable(self.types)
        self.namer = Namer()
        self.none = ir.NoneType.get()
        self.entry: ir.Block
        self.arguments: dict[tuple[Scope, str], ir.Value] = {}
        self.absent: ir.Value | None = None

    def module(self) -> ir.Module:
        """Return the module with `func.func @main`."""
        module = ir.Module.create()
        _set_header(module, self.model)
        with ir.InsertionPoint(module.body):
            ties = self._function()
        if ties.are_unknown:
            keys.UNTIED.set(module.operation.attributes, True)
        return module

    def _function(self) -> Ties:
        graph, read = self.model.graph, self._used_parameters()
        ties = Ties({}) if self.folder is None else find_ties(self.model, self.folder, read)
        copies = ties.originals
        used = [key for key in read if key not in copies]
        # A graph may list its initializers among its inputs, as default values.
        stored = {tensor.name for tensor in graph.initializer}
        stored.update(name for scope, name in self.model.parameters if not scope)
        inputs = [value for value in graph.input if value.name not in stored]
        types = [self.types.type(value.type) for value in inputs]
        types += [self.types.type(_tensor_type(self.model.parameters[k].tensor)) for k in used]
        function = ir.Operation.create("func.func", regions=1)
        function.attributes["sym_name"] = ir.StringAttr.get("main")
        self.entry = function.regions[0].blocks.append(*types)
        arguments = list(self.entry.arguments)
        values: Values = {v.name: a for v, a in zip(inputs, arguments, strict=False)}
        self.arguments = dict(zip(used, arguments[len(inputs) :], strict=True))
        with ir.InsertionPoint(self.entry):
            for (scope, name), original in copies.items():
                self.arguments[scope, name] = self._transpose(self.arguments[original], name)
            results = self._graph(graph, (), values)
            ir.Operation.create("func.return", operands=results)
        kinds = ir.FunctionType.get(types, [result.type for result in results])
        function.attributes["function_type"] = ir.TypeAttr.get(kinds)
        given = [_argument(v.name, v.type) for v in inputs]
        given += [self._parameter(self.model.parameters[key]) for key in used]
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(given)
        returned = [_argument(v.name, v.type) for v in graph.output]
        function.attributes["res_attrs"] = ir.ArrayAttr.get(returned)
        return ties

    def _parameter(self, parameter: Parameter) -> ir.Attribute:
        """Return the attributes of a parameter; in training, causal masks are found."""
        attributes = {**keys.NAME.item(parameter.name), **keys.PARAM.item(True)}
        if parameter.listed:
            attributes |= keys.LISTED.item(True)
        if parameter.fixed:
            attributes |= keys.FIXED.item(True)
        if self.masks is not None:
            triangle = triangle_of(locate(self.masks, parameter.tensor))
            attributes |= {} if triangle is None else keys.TRIANGLE.item(triangle)
        return ir.DictAttr.get(attributes)

    def _transpose(self, matrix: ir.Value, name: str) -> ir.Value:
        kind = ir.RankedTensorType(matrix.type)
        return ir.Operation.create(
            op_name("", "Transpose"),
            results=[ir.RankedTensorType.get(list(kind.shape)[::-1], kind.element_type)],
            operands=[matrix],
            attributes={"perm": ints_attr([1, 0])},
            loc=self._location(name),
        ).result

    def _used_parameters(self) -> list[tuple[Scope, str]]:
        """Return the keys of the parameters in the order of their first use."""
        order: dict[tuple[Scope, str], None] = {}
        self._visit(self.model.graph, (), {}, order)
        return list(order)

    def _visit(
        self,
        graph: onnx.GraphProto,
        scope: Scope,
        outer: Mapping[str, tuple[Scope, str] | None],
        order: dict[tuple[Scope, str], None],
    ) -> None:
        visible: dict[str, tuple[Scope, str] | None] = {**outer}
        visible.update((value.name, None) for value in graph.input)
        visible.update((name, None) for node in graph.node for name in node.output)
        visible.update((t.name, None) for t in graph.initializer)
        visible.update((key[1], key) for key in self.model.parameters if key[0] == scope)
        for index, node in enumerate(graph.node):
            _record(order, (visible.get(name) for name in node.input))
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    self._visit(attribute.g, (*scope, (index, attribute.name)), visible, order)
        _record(order, (visible.get(value.name) for value in graph.output))

    def _graph(self, graph: onnx.GraphProto, scope: Scope, outer: Values) -> list[ir.Value]:
        """Build the nodes of one graph at the insertion point; return its outputs."""
        values = {**outer}
        for (where, name), argument in self.arguments.items():
            if where == scope:
                values[name] = argument
        types = value_types(graph)
        used = names_read(graph)
        for tensor in graph.initializer:
            if tensor.name in used:
                self._constant(tensor, tensor.name, scope, values)
        for index, node in enumerate(graph.node):
            if node.op_type == "Constant" and not node.domain:
                self._constant(constant_tensor(node), node.name, scope, values)
                continue
            self._node(node, (*scope, (index, "")), values, types)
        return [values[output.name] for output in graph.output]

    def _constant(self, tensor: onnx.TensorProto, name: str, scope: Scope, values: Values) -> None:
        if (scope, tensor.name) in self.model.parameters:
            return
        literal = self._try(None, lambda: self.attributes.tensor(tensor))
        op = ir.Operation.create(
            CONSTANT,
            results=[self.types.type(_tensor_type(tensor))],
            attributes={"value": literal},
            loc=self._location(name),
        )
        values[tensor.name] = op.result

    def _node(
        self, node: onnx.NodeProto, place: Scope, values: Values, types: dict[str, Any]
    ) -> None:
        results = [self._result_type(node, name, types) for name in node.output]
        graphs = sorted((a for a in node.attribute if a.HasField("g")), key=lambda a: a.name)
        plain = {
            a.name: self._try(node, partial(self.attributes.attribute, a))
            for a in node.attribute
            if not a.HasField("g")
        }
        if graphs:
            plain |= keys.REGIONS.item([graph.name for graph in graphs])
        op = ir.Operation.create(
            op_name(node.domain, node.op_type),
            results=results,
            operands=self._operands(node, values),
            attributes=plain,
            regions=len(graphs),
            loc=self._location(node.name),
        )
        for region, graph in zip(op.regions, graphs, strict=True):
            self._region(region, graph, (*place[:-1], (place[-1][0], graph.name)), values)
        for name, value in zip(node.output, op.results, strict=True):
            values[name] = value

    def _operands(self, node: onnx.NodeProto, values: Values) -> list[ir.Value]:
        found = [values[name] if name else self._no_value() for name in node.input]
        if node.op_type == "Range" and not node.domain:
            return [self._squeeze_bound(value, node) for value in found]
        if node.op_type == "Slice" and not node.domain and len(found) == _WITH_STEPS:
            found[_ENDS] = self._normalize_ends(found[_ENDS], constant_value(found[_STEPS]), node)
        return found

    def _normalize_ends(
        self, ends: ir.Value, steps: Array | None, node: onnx.NodeProto
    ) -> ir.Value:
        """Return a Slice's ends, with the smallest integer for "to the end" of negative steps.

        ONNX Runtime treats the largest integer the same when it runs the op, but assumes an empty
        result when it checks the readers.
        """
        known = constant_value(ends)
        if known is None or steps is None or known.shape != steps.shape:
            return ends
        written = normalize_ends(known, steps)
        if (written == known).all():
            return ends
        location = self._location(f"{node.name}.Constant")
        value = {"value": to_dense(written)}
        return ir.Operation.create(CONSTANT, [ends.type], [], value, loc=location).result

    def _squeeze_bound(self, value: ir.Value, node: onnx.NodeProto) -> ir.Value:
        """Return a bound of Range without its dimension of size 1.

        ONNX Runtime runs such a Range, but refuses it when the bound becomes a constant.
        """
        kind = value.type
        if not isinstance(kind, ir.RankedTensorType) or list(kind.shape) != [1]:
            return value
        scalar = ir.RankedTensorType.get([], kind.element_type)
        squeeze = op_name("", "Squeeze")
        location = self._location(f"{node.name}.Squeeze")
        return ir.Operation.create(squeeze, [scalar], [value], loc=location).result

    def _region(
        self, region: ir.Region, attribute: onnx.AttributeProto, scope: Scope, outer: Values
    ) -> None:
        graph = attribute.g
        kinds = [self.types.type(value.type) for value in graph.input]
        block = region.blocks.append(*kinds)
        inner = {value.name: a for value, a in zip(graph.input, block.arguments, strict=True)}
        with ir.InsertionPoint(block):
            results = self._graph(graph, scope, {**outer, **inner})
            ir.Operation.create(YIELD, operands=results)

    def _result_type(self, node: onnx.NodeProto, name: str, types: dict[str, Any]) -> ir.Type:
        if not name:
            return self.none
        if name not in types:
            raise node_error(self.model.path, node, f"the type of '{name}' cannot be inferred")
        return self._try(node, lambda: self.types.type(types[name]))

    def _no_value(self) -> ir.Value:
        """Return the single `onnx.NoValue`, at the start of the function."""
        if self.absent is None:
            point = ir.InsertionPoint.at_block_begin(self.entry)
            self.absent = ir.Operation.create(NO_VALUE, results=[self.none], ip=point).result
        return self.absent

    def _location(self, name: str) -> ir.Location:
        return ir.Location.name(self.namer.unique(name))

    def _try(self, node: onnx.NodeProto | None, make: Callable[[], T]) -> T:
        """Return ``make()``; errors are raised with the place in the model."""
        try:
            return make()
        except UserError as error:
            if node is None:
                raise UserError(f"{self.model.path}: {error}") from None
            raise node_error(self.model.path, node, str(error)) from None


def _set_header(module: ir.Module, model: Model) -> None:
    versions = {domain or "ai.onnx": version for domain, version in model.opsets.items()}
    attributes = module.operation.attributes
    keys.MODEL.set(attributes, model.path.name)
    keys.OPSET.set(attributes, versions)
    keys.IR_VERSION.set(attributes, model.proto.ir_version)
    if model.proto.configuration:
        names = [configuration.name for configuration in model.proto.configuration]
        keys.ANNOTATED.set(attributes, names)
    if model.metadata.merged:
        keys.MERGED.set(attributes, list(model.metadata.merged))
    if model.metadata.lost is not None:
        keys.LOST.set(attributes, list(model.metadata.lost))
    if model.metadata.tied:
        keys.TIED.set(attributes, model.metadata.tied)


def _argument(name: str, kind: onnx.TypeProto) -> ir.Attribute:
    """Return the attributes of an input or output."""
    attributes = keys.NAME.item(name)
    if (names := dim_names(kind)) is not None:
        attributes |= keys.DIMS.item(names)
    return ir.DictAttr.get(attributes)


def _tensor_type(tensor: onnx.TensorProto) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))


def _record(order: dict[tuple[Scope, str], None], keys: Iterable[tuple[Scope, str] | None]) -> None:
    order.update((key, None) for key in keys if key is not None)
