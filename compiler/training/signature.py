"""The arguments and results of `@main` while a training step is built."""

from __future__ import annotations

from collections.abc import Mapping

from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.names import free_name
from tensoropt.compiler.training.marks import Marker
from tensoropt.dialects import onnx
from tensoropt.dialects.build import tensor_type
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["Signature"]


class Signature:
    """Adds arguments and results to ``@main``; :meth:`finish` writes them to the function.

    Every argument gets a number (``topt.id``).
    """

    def __init__(self, module: ir.Module, marker: Marker) -> None:
        self.function, self.marker = onnx.function(module), marker
        self.opset = onnx.opsets(module)[""]
        self.block = self.function.regions[0].blocks[0]
        self.arguments: dict[ir.Value, dict[str, ir.Attribute]] = {}
        for value, own in zip(self.block.arguments, self._attributes("arg_attrs"), strict=False):
            self._adopt(value, {item.name: item.attr for item in own})
        self.taken = {*map(self.name_of, self.arguments)}
        self.hypers: dict[str, ir.Value] = {}
        self.results: list[tuple[ir.Value, dict[str, ir.Attribute]]] = []
        end = self.block.operations[len(self.block.operations) - 1].operation
        names = [keys.NAME.of(own) for own in self._attributes("res_attrs")]
        self.outputs = dict(zip(names, end.operands, strict=False))
        end.erase()

    def _attributes(self, key: str) -> list[ir.DictAttr]:
        """Return the attributes of every argument or result."""
        attributes, kind = onnx.carried(self.function, key), onnx.signature(self.function)
        expected = len(kind.inputs if key == "arg_attrs" else kind.results)
        if len(attributes) != expected or not all(keys.NAME.on(own) for own in attributes):
            what = "argument" if key == "arg_attrs" else "result"
            raise UserError(f"function @main: expected topt.name on every {what}")
        return attributes

    def _adopt(self, value: ir.Value, attributes: dict[str, ir.Attribute]) -> None:
        self.arguments[value] = {**attributes, **keys.ID.item(self.marker.number())}

    def argument(
        self, name: str, type_: ir.Type, attributes: Mapping[str, ir.Attribute] | None = None
    ) -> ir.Value:
        """Return a new argument with a name and further ``attributes``."""
        value = self.block.add_argument(type_, ir.Location.unknown())
        self._adopt(value, {**keys.NAME.item(name), **(attributes or {})})
        return value

    def hyper(self, name: str, type_: ir.Type | None = None) -> ir.Value:
        """Return the scalar input ``name`` of every step, of type ``type_`` or else float32."""
        if name not in self.hypers:
            type_ = type_ or tensor_type([], ir.F32Type.get())
            self.hypers[name] = self.argument(self.free_name(name), type_, keys.HYPER.item(name))
        return self.hypers[name]

    def state(self, w: ir.Value, kind: str, type_: ir.Type) -> ir.Value:
        """Return a new argument for state of parameter ``w`` that is carried from step to step."""
        name = self.name_of(w)
        own = {**keys.STATE.item(kind), **keys.OF.item(name)}
        return self.argument(self.free_name(f"{name}.{kind}"), type_, own)

    def mark(self, value: ir.Value, attributes: Mapping[str, ir.Attribute]) -> None:
        """Add attributes to an argument."""
        self.arguments[value].update(attributes)

    def set_state(self, value: ir.Value, kind: str) -> None:
        """Turn a weight into state of the given kind, which the step also returns."""
        attributes = self.arguments[value]
        keys.PARAM.remove(attributes)
        attributes.update(keys.STATE.item(kind))

    def name_of(self, value: ir.Value) -> str:
        """Return the name of an argument."""
        return keys.NAME.of(self.arguments[value])

    def number_of(self, value: ir.Value) -> int:
        """Return the number of an argument."""
        return keys.ID.of(self.arguments[value])

    def is_parameter(self, value: ir.Value) -> bool:
        """Return whether an argument is a weight of the model."""
        return keys.PARAM.on(self.arguments[value])

    def free_name(self, wanted: str) -> str:
        """Reserve and return ``wanted``, with a numeric suffix if that name is taken."""
        return free_name(wanted, self.taken)

    def add_result(
        self, value: ir.Value, name: str, attributes: Mapping[str, ir.Attribute] | None = None
    ) -> None:
        """Add a result with a name and further ``attributes``."""
        self.results.append((value, {**keys.NAME.item(name), **(attributes or {})}))

    def replace(self, old: ir.Value, new: ir.Value, follows: int) -> None:
        """Return ``new`` from the step as the next value of argument ``old``."""
        name = self.name_of(old)
        own = {**keys.UPDATES.item(name), **keys.FOLLOWS.item(follows)}
        self.add_result(new, self.free_name(f"{name}.new"), own)

    def finish(self) -> None:
        """Write the return op and the function's attributes, at the end of its block."""
        values = [value for value, _ in self.results]
        ir.Operation.create("func.return", operands=values, loc=self.function.location)
        types = [value.type for value in self.block.arguments]
        kind = ir.FunctionType.get(types, [value.type for value in values])
        attributes = self.function.attributes
        attributes["function_type"] = ir.TypeAttr.get(kind)
        own = [self.arguments[value] for value in self.block.arguments]
        attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(each) for each in own])
        returned = [ir.DictAttr.get(each) for _, each in self.results]
        attributes["res_attrs"] = ir.ArrayAttr.get(returned)
