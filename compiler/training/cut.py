"""Split the program of a training step into a gradient program and an update program.

Only gradients pass from the first to the second. State that the update writes is therefore never
read afterwards, and the gradient program can run several times or without the update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO

from tensoropt.compiler.shapes.refine import update_signature
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = [
    "GRADIENTS",
    "UPDATE",
    "Parts",
    "argument_names",
    "bytecode",
    "copy_of",
    "cut_step",
    "drop_unused_arguments",
    "result_names",
    "updated_names",
]

GRADIENTS, UPDATE = "gradients", "update"


@dataclass(frozen=True)
class Parts:
    """The two programs of a step, and the name of each gradient by its parameter's name.

    A gradient is a result of the first program and an argument of the second.
    """

    gradients: ir.Module
    update: ir.Module
    names: Mapping[str, str]

    @property
    def modules(self) -> dict[str, ir.Module]:
        """Both programs by name, in the order in which they run."""
        return {GRADIENTS: self.gradients, UPDATE: self.update}


def argument_names(module: ir.Module) -> list[str]:
    """Return the names of the arguments of `@main`, in order."""
    return [keys.NAME.of(own) for own in onnx.carried(onnx.function(module), "arg_attrs")]


def result_names(module: ir.Module) -> list[str]:
    """Return the names of the results of `@main`, in order."""
    return [keys.NAME.of(own) for own in onnx.carried(onnx.function(module), "res_attrs")]


def updated_names(module: ir.Module) -> list[str]:
    """Return the names of the arguments that `@main` returns new values for, in that order."""
    attributes = onnx.carried(onnx.function(module), "res_attrs")
    return [keys.UPDATES.of(own) for own in attributes if keys.UPDATES.on(own)]


def cut_step(module: ir.Module) -> Parts:
    """Return both parts of a (partitioned) training step; ``module`` is left unchanged.

    Literals, and values computed only from literals and from scalar inputs of the step, are
    duplicated in each part that reads them. Linear in the operations. Raises RuntimeError if any
    other value would have to pass between the parts.
    """
    names = _gradient_names(module)
    parts: list[ir.Module] = []
    for name in (GRADIENTS, UPDATE):
        part = copy_of(module)
        with part.context, ir.Location.unknown():
            _Part(part, names).keep(name)
        parts.append(part)
    return Parts(parts[0], parts[1], names)


def copy_of(module: ir.Module) -> ir.Module:
    """Return a copy of ``module`` in its context, including node names."""
    return ir.Module.parse(bytecode(module), module.context)


def bytecode(module: ir.Module) -> bytes:
    """Return ``module`` as bytes; equal modules have equal bytes."""
    written = BytesIO()
    module.operation.write_bytecode(written)
    return written.getvalue()


def drop_unused_arguments(module: ir.Module) -> None:
    """Remove the arguments of `@main` that nothing reads."""
    main = onnx.function(module)
    block, attributes = main.regions[0].blocks[0], onnx.carried(main, "arg_attrs")
    for index in reversed(range(len(attributes))):
        if not _is_used(block.arguments[index]):
            block.erase_argument(index)
            del attributes[index]
    with module.context, ir.Location.unknown():
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
        update_signature(module)


def _gradient_names(module: ir.Module) -> dict[str, str]:
    taken = {*argument_names(module), *result_names(module)}
    names: dict[str, str] = {}
    for op in _body(onnx.function(module)):
        if keys.GRADIENT_OF.on(op.attributes):
            parameter = keys.GRADIENT_OF.of(op.attributes)
            name = wanted = f"{parameter}.grad"
            number = 0
            while name in taken:
                number += 1
                name = f"{wanted}_{number}"
            taken.add(name)
            names[parameter] = name
    return names


class _Part:
    def __init__(self, module: ir.Module, names: Mapping[str, str]) -> None:
        self.module, self.main = module, onnx.function(module)
        self.block = self.main.regions[0].blocks[0]
        self.end = self.block.operations[len(self.block.operations) - 1].operation
        self.arguments = onnx.carried(self.main, "arg_attrs")
        self.results = list(
            zip(self.end.operands, onnx.carried(self.main, "res_attrs"), strict=True)
        )
        self.gradients = {
            names[keys.GRADIENT_OF.of(op.attributes)]: op.results[0]
            for op in _body(self.main)
            if keys.GRADIENT_OF.on(op.attributes)
        }

    def keep(self, part: str) -> None:
        """Remove everything that does not belong to ``part``."""
        own = []
        for value, result in self.results:
            op = onnx.owner(value)
            is_update = op is not None and onnx.phase(op) == "update"
            if is_update == (part == UPDATE):
                own.append((value, result))
        for name, value in self.gradients.items():
            attributes = ir.DictAttr.get(keys.NAME.item(name))
            if part == GRADIENTS:
                own.append((value, attributes))
            else:
                argument = self.block.add_argument(value.type, ir.Location.unknown())
                value.replace_all_uses_with(argument)
                self.arguments.append(attributes)
        with ir.InsertionPoint(self.end):
            ir.Operation.create("func.return", operands=[value for value, _ in own])
        self.end.erase()
        self.main.attributes["res_attrs"] = ir.ArrayAttr.get([result for _, result in own])
        # Operations have no effect other than their results, so unused ones can go.
        for op in reversed(_body(self.main)):
            if not any(map(_is_used, op.results)):
                op.erase()
        self._check(part)
        self.main.attributes["arg_attrs"] = ir.ArrayAttr.get(self.arguments)
        drop_unused_arguments(self.module)

    def _check(self, part: str) -> None:
        """Raise RuntimeError if an op of the other part is left that depends on more than
        scalars."""
        pairs = zip(self.block.arguments, self.arguments, strict=True)
        free: set[ir.Value] = {value for value, pair in pairs if keys.HYPER.on(pair)}
        for op in _body(self.main):
            if (onnx.phase(op) == "update") == (part == UPDATE):
                continue
            if not onnx.is_foldable(op) or not free.issuperset(onnx.read_values(op)):
                raise RuntimeError(
                    f"the {part} part of a training step needs '{onnx.node_name(op) or op.name}' "
                    "of the other, expected gradients alone to pass between them"
                )
            free.update(op.results)


def _body(main: ir.Operation) -> list[ir.Operation]:
    """Return the operations of `@main`, except its return."""
    return [op.operation for op in main.regions[0].blocks[0]][:-1]


def _is_used(value: ir.Value) -> bool:
    return next(iter(value.uses), None) is not None
