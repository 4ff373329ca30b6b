"""Alternative builds of one training step, all in one module until the search picks one.

The first is `@main`. Each function carries its recompute policy and its number of micro-batches.
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
    "Alternative",
    "alternatives",
    "keep_alternative",
    "put_alternatives",
    "unite_alternatives",
]

_MAIN = "main"


@dataclass(frozen=True)
class Alternative:
    """An alternative build of a step: its recompute policy and its number of micro-batches."""

    recompute: str
    micro_batches: int = 1

    def __str__(self) -> str:
        several = f", {self.micro_batches} micro-batches" if self.micro_batches > 1 else ""
        return f"{self.recompute}{several}"


INFERENCE = Alternative("")
"""The key of a module that is not a training step."""


def alternatives(module: ir.Module) -> dict[Alternative, ir.Operation]:
    """Return the alternative steps of ``module``; without any, `@main` under :data:`INFERENCE`."""
    main = onnx.function(module)
    training = TRAINING.get(module.operation.attributes)
    if training is None:
        return {INFERENCE: main}
    functions = [op.operation for op in module.body if op.operation.name == "func.func"]
    marked = {
        _alternative_of(f, RECOMPUTE.of(f.attributes)): f
        for f in functions
        if RECOMPUTE.on(f.attributes)
    }
    return marked or {_alternative_of(main, str(training.get("recompute", "none"))): main}


def _alternative_of(function: ir.Operation, recompute: str) -> Alternative:
    return Alternative(recompute, MICRO_BATCHES.get(function.attributes) or 1)


def put_alternatives(module: ir.Module, steps: Mapping[str, ir.Module]) -> None:
    """Replace the `@main` of ``module`` by the `@main` of each of ``steps``, which are consumed.

    The keys of ``steps`` are recompute policies. If there are several steps, each is marked with
    its policy and all except the first are renamed.
    """
    onnx.function(module).erase()
    for number, (alternative, step) in enumerate(steps.items()):
        main = onnx.function(step)
        module.body.append(main)
        if len(steps) > 1:
            RECOMPUTE.set(main.attributes, alternative)
        if number:
            main.attributes["sym_name"] = ir.StringAttr.get(f"{_MAIN}.{alternative}")
        _take_opsets(module, step)


def unite_alternatives(modules: Sequence[ir.Module]) -> ir.Module:
    """Return a module with the alternatives of all ``modules``, which are left unchanged.

    Each module has another number of micro-batches. `@main` is the `@main` of the first.
    """
    made = copy_of(modules[0])
    with made.context, ir.Location.unknown():
        for alternative, function in alternatives(made).items():
            RECOMPUTE.set(function.attributes, alternative.recompute)
        for other in modules[1:]:
            step = ir.Module.parse(bytecode(other), made.context)
            for alternative, function in alternatives(step).items():
                made.body.append(function)
                RECOMPUTE.set(function.attributes, alternative.recompute)
                name = f"{_MAIN}.{alternative.recompute}.{alternative.micro_batches}"
                function.attributes["sym_name"] = ir.StringAttr.get(name)
            _take_opsets(made, step)
    return made


def _take_opsets(module: ir.Module, step: ir.Module) -> None:
    attributes = module.operation.attributes
    OPSET.set(attributes, {**OPSET.of(attributes), **OPSET.of(step.operation.attributes)})


def keep_alternative(module: ir.Module, alternative: Alternative) -> None:
    """Erase all alternatives except ``alternative``, which becomes `@main`."""
    functions = alternatives(module)
    for other in functions.keys() - {alternative}:
        functions[other].erase()
    with module.context, ir.Location.unknown():
        main, attributes = functions[alternative].attributes, module.operation.attributes
        main["sym_name"] = ir.StringAttr.get(_MAIN)
        RECOMPUTE.remove(main)
        if alternative != INFERENCE:
            training = TRAINING.of(attributes)
            training = {
                **training,
                "recompute": alternative.recompute,
                "micro_batches": alternative.micro_batches,
            }
            TRAINING.set(attributes, training)
