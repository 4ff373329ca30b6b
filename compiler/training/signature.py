"""The arguments and results of `@main`, while a training step is built."""

from __future__ import annotations

from collections.abc import Mapping

from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.marks import Marker
from tensoropt.dialects import onnx
from tensoropt.dialects.build import tensor_type
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["Signature"]


class Signature:
    """Adds to the arguments and results of ``@main``; :meth:`finish` writes them down.

    Every argument gets a number (``topt.id``).
    """

    def __init__(self, module: ir.Module, marker: Marker) -> None:
        self.function, self.marker = onnx.function(module), marker
        self.opset = onnx.opsets(module)[""]
        self.block = self.function.regions[0].blocks[0]
        self.arguments: dict[ir.Value, dict[str, ir.Attribute]] = {}
        for value, own in zip(self.block.arguments, self._held("arg_attrs"), strict=False):
            self._adopt(value, {item.name: item.attr for item in own})
        self.taken = {*map(self.name_of, self.arguments)}
        self.hypers: dict[str, ir.Value] = {}
        self.results: list[tuple[ir.Value, dict[str, ir.Attribute]]] = []
        end = self.block.operations[len(self.block.operations) - 1].operation
        names = [keys.NAME.of(own) for own in self._held("res_attrs")]
        self.outputs = dict(zip(names, end.operands, strict=False))
        end.erase()

    def _held(self, key: str) -> list[ir.DictAttr]:
        """Return what every argument or result carries."""
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
        """Return a new argument that carries ``attributes`` beside its name."""
        value = self.block.add_argument(type_, ir.Location.unknown())
        self._adopt(value, {**keys.NAME.item(name), **(attributes or {})})
        return value

    def hyper(self, name: str, type_: ir.Type | None = None) -> ir.Value:
        """Return the scalar ``name`` that every step is given, float32 unless ``type_`` says."""
        if name not in self.hypers:
            type_ = type_ or tensor_type([], ir.F32Type.get())
            self.hypers[name] = self.argument(self.free_name(name), type_, keys.HYPER.item(name))
        return self.hypers[name]

    def state(self, w: ir.Value, kind: str, type_: ir.Type) -> ir.Value:
        """Return a new argument that is kept for parameter ``w`` from step to step."""
        name = self.name_of(w)
        own = {**keys.STATE.item(kind), **keys.OF.item(name)}
        return self.argument(self.free_name(f"{name}.{kind}"), type_, own)

    def mark(self, value: ir.Value, attributes: Mapping[str, ir.Attribute]) -> None:
        """Give an argument further attributes."""
        self.arguments[value].update(attributes)

    def keep(self, value: ir.Value, kind: str) -> None:
        """Make a weight state of the step, of this kind: it is given back each time."""
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
        """Say whether an argument is a weight of the model."""
        return keys.PARAM.on(self.arguments[value])

    def free_name(self, wanted: str) -> str:
        """Take ``wanted``, or that with a number behind, which names no argument or result."""
        number = 0
        while (name := f"{wanted}_{number}" if number else wanted) in self.taken:
            number += 1
        self.taken.add(name)
        return name

    def give(
        self, value: ir.Value, name: str, attributes: Mapping[str, ir.Attribute] | None = None
    ) -> None:
        """Add a result that carries ``attributes`` beside its name."""
        self.results.append((value, {**keys.NAME.item(name), **(attributes or {})}))

    def replace(self, old: ir.Value, new: ir.Value, follows: int) -> None:
        """Give ``new`` away as what argument ``old`` is in the next step."""
        name = self.name_of(old)
        own = {**keys.UPDATES.item(name), **keys.FOLLOWS.item(follows)}
        self.give(new, self.free_name(f"{name}.new"), own)

    def finish(self) -> None:
        """Write the return op and the attributes of the function, at the end of its block."""
        values = [value for value, _ in self.results]
        ir.Operation.create("func.return", operands=values, loc=self.function.location)
        types = [value.type for value in self.block.arguments]
        kind = ir.FunctionType.get(types, [value.type for value in values])
        attributes = self.function.attributes
        attributes["function_type"] = ir.TypeAttr.get(kind)
        own = [self.arguments[value] for value in self.block.arguments]
        attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(one) for one in own])
        given = [ir.DictAttr.get(one) for _, one in self.results]
        attributes["res_attrs"] = ir.ArrayAttr.get(given)
