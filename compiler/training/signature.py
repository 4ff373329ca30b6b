"""The arguments and results of `@main`, while a training step is built."""

from __future__ import annotations

from typing import Any

from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.marks import Marker
from tensoropt.dialects import onnx
from tensoropt.dialects.build import int_attr, tensor_type
from tensoropt.dialects.mlir import ir

__all__ = ["Signature"]


class Signature:
    """Adds to the arguments and results of ``@main``; :meth:`finish` writes them down.

    Every argument gets a number (``topt.id``).
    """

    def __init__(self, module: ir.Module, marker: Marker) -> None:
        self.function, self.marker = onnx.function(module), marker
        self.opset = onnx.opsets(module)[""]
        self.block = self.function.regions[0].blocks[0]
        self.arguments: dict[Any, dict[str, ir.Attribute]] = {}
        for value, own in zip(self.block.arguments, self._held("arg_attrs"), strict=False):
            self._adopt(value, {item.name: item.attr for item in own})
        self.taken = {*map(self.name_of, self.arguments)}
        self.hypers: dict[str, Any] = {}
        self.results: list[tuple[Any, dict[str, ir.Attribute]]] = []
        end = self.block.operations[len(self.block.operations) - 1].operation
        names = [own["topt.name"].value for own in self._held("res_attrs")]
        self.outputs = dict(zip(names, end.operands, strict=False))
        end.erase()

    def _held(self, key: str) -> list[ir.DictAttr]:
        """Return what every argument or result carries."""
        held = list(self.function.attributes[key]) if key in self.function.attributes else []
        kind = self.function.attributes["function_type"].value
        expected = len(kind.inputs if key == "arg_attrs" else kind.results)
        if len(held) != expected or not all("topt.name" in own for own in held):
            what = "argument" if key == "arg_attrs" else "result"
            raise UserError(f"function @main: expected topt.name on every {what}")
        return held

    def _adopt(self, value: Any, attributes: dict[str, ir.Attribute]) -> None:
        self.arguments[value] = {**attributes, "topt.id": int_attr(self.marker.number())}

    def argument(self, name: str, type_: ir.Type, **attributes: ir.Attribute) -> Any:
        """Return a new argument; ``attributes`` are written without ``topt.`` in front."""
        value = self.block.add_argument(type_, ir.Location.unknown())
        self._adopt(value, _named(name, attributes))
        return value

    def hyper(self, name: str, type_: ir.Type | None = None) -> Any:
        """Return the scalar ``name`` that every step is given, float32 unless ``type_`` says."""
        if name not in self.hypers:
            type_ = type_ or tensor_type([], ir.F32Type.get())
            hyper = ir.StringAttr.get(name)
            self.hypers[name] = self.argument(self.free_name(name), type_, hyper=hyper)
        return self.hypers[name]

    def state(self, w: Any, kind: str, type_: ir.Type) -> Any:
        """Return a new argument that is kept for parameter ``w`` from step to step."""
        name = self.name_of(w)
        state, of = ir.StringAttr.get(kind), ir.StringAttr.get(name)
        return self.argument(self.free_name(f"{name}.{kind}"), type_, state=state, of=of)

    def mark(self, value: Any, **attributes: ir.Attribute | None) -> None:
        """Set attributes of an argument, or remove those that are ``None``."""
        held = self.arguments[value]
        for name, attribute in attributes.items():
            held.pop(f"topt.{name}", None)
            if attribute is not None:
                held[f"topt.{name}"] = attribute

    def name_of(self, value: Any) -> str:
        """Return the name of an argument."""
        return str(self.arguments[value]["topt.name"].value)

    def number_of(self, value: Any) -> int:
        """Return the number of an argument."""
        return int(self.arguments[value]["topt.id"].value)

    def is_parameter(self, value: Any) -> bool:
        """Say whether an argument is a weight of the model."""
        return "topt.param" in self.arguments[value]

    def free_name(self, wanted: str) -> str:
        """Take ``wanted``, or that with a number behind, which names no argument or result."""
        number = 0
        while (name := f"{wanted}_{number}" if number else wanted) in self.taken:
            number += 1
        self.taken.add(name)
        return name

    def give(self, value: Any, name: str, **attributes: ir.Attribute) -> None:
        """Add a result."""
        self.results.append((value, _named(name, attributes)))

    def replace(self, old: Any, new: Any, follows: int) -> None:
        """Give ``new`` away as what argument ``old`` is in the next step."""
        name = self.name_of(old)
        updates, number = ir.StringAttr.get(name), int_attr(follows)
        self.give(new, self.free_name(f"{name}.new"), updates=updates, follows=number)

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


def _named(name: str, attributes: dict[str, ir.Attribute]) -> dict[str, ir.Attribute]:
    held = {f"topt.{key}": value for key, value in attributes.items()}
    return {"topt.name": ir.StringAttr.get(name), **held}
