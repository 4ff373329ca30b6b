"""The ways to build one training step, side by side in a module until the search takes one.

The first is `@main`; each function says what it computes anew in its backward pass, and in how many
micro-batches it is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensoropt.compiler.training.cut import bytecode, copy_of
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.keys import MICRO_BATCHES, OPSET, RECOMPUTE, TRAINING

__all__ = [
    "INFERENCE",
    "Way",
    "alternatives",
    "keep_alternative",
    "put_alternatives",
    "united",
]

_MAIN = "main"


@dataclass(frozen=True)
class Way:
    """One way to build a step: what it computes anew, and in how many micro-batches it is run."""

    recompute: str
    micro_batches: int = 1

    def __str__(self) -> str:
        several = f", {self.micro_batches} micro-batches" if self.micro_batches > 1 else ""
        return f"{self.recompute}{several}"


INFERENCE = Way("")
"""What is no training step."""


def alternatives(module: ir.Module) -> dict[Way, ir.Operation]:
    """Return the functions of ``module`` by the way that each is, :data:`INFERENCE` if none."""
    main = onnx.function(module)
    training = TRAINING.get(module.operation.attributes)
    if training is None:
        return {INFERENCE: main}
    functions = [op.operation for op in module.body if op.operation.name == "func.func"]
    marked = {
        _way(f, RECOMPUTE.of(f.attributes)): f for f in functions if RECOMPUTE.on(f.attributes)
    }
    return marked or {_way(main, str(training.get("recompute", "none"))): main}


def _way(function: ir.Operation, recompute: str) -> Way:
    return Way(recompute, MICRO_BATCHES.get(function.attributes) or 1)


def put_alternatives(module: ir.Module, steps: Mapping[str, ir.Module]) -> None:
    """Put the `@main` of each of ``steps`` in the place of that of ``module``; steps are spent.

    They are given by what they compute anew. Of several, all but the first get another name, and
    each says which way it is.
    """
    onnx.function(module).erase()
    for number, (way, step) in enumerate(steps.items()):
        main = onnx.function(step)
        module.body.append(main)
        if len(steps) > 1:
            RECOMPUTE.set(main.attributes, way)
        if number:
            main.attributes["sym_name"] = ir.StringAttr.get(f"{_MAIN}.{way}")
        _take_opsets(module, step)


def united(modules: Sequence[ir.Module]) -> ir.Module:
    """Return a module with the alternatives of all ``modules``, each of another number of
    micro-batches; `@main` is that of the first. They stay as they are."""
    made = copy_of(modules[0])
    with made.context, ir.Location.unknown():
        for way, function in alternatives(made).items():
            RECOMPUTE.set(function.attributes, way.recompute)
        for other in modules[1:]:
            step = ir.Module.parse(bytecode(other), made.context)
            for way, function in alternatives(step).items():
                made.body.append(function)
                RECOMPUTE.set(function.attributes, way.recompute)
                name = f"{_MAIN}.{way.recompute}.{way.micro_batches}"
                function.attributes["sym_name"] = ir.StringAttr.get(name)
            _take_opsets(made, step)
    return made


def _take_opsets(module: ir.Module, step: ir.Module) -> None:
    attributes = module.operation.attributes
    OPSET.set(attributes, {**OPSET.of(attributes), **OPSET.of(step.operation.attributes)})


def keep_alternative(module: ir.Module, way: Way) -> None:
    """Leave of all alternatives the one that is ``way``, as `@main`."""
    functions = alternatives(module)
    for other in functions.keys() - {way}:
        functions[other].erase()
    with module.context, ir.Location.unknown():
        main, attributes = functions[way].attributes, module.operation.attributes
        main["sym_name"] = ir.StringAttr.get(_MAIN)
        RECOMPUTE.remove(main)
        if way != INFERENCE:
            own = TRAINING.of(attributes)
            own = {**own, "recompute": way.recompute, "micro_batches": way.micro_batches}
            TRAINING.set(attributes, own)
